// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// cadence is the timing of a journal.
type cadence struct {
	// pace is how often members are examined that are not live, or in which something
	// fails. The others are examined once every sweep.
	pace, sweep time.Duration
	// burst is how long the journal waits after a failure for related ones.
	burst time.Duration
	// failure is how long something must fail before that is logged. The first retry of a
	// list or watch comes within 1.6 s, and most failures end with it. patience is the
	// same limit for discovery and the directory, which are read less often, and for
	// resources that fail without a response.
	failure, patience time.Duration
	// progress is how often the progress of the first sync is logged, and idle how often
	// while nothing progresses.
	progress, idle time.Duration
}

var defaultCadence = cadence{
	pace: time.Second, sweep: time.Minute, burst: 250 * time.Millisecond,
	failure: 3 * time.Second, patience: 10 * time.Second,
	progress: 5 * time.Second, idle: time.Minute,
}

// journal logs the life of a fleet's members: one line for each change of a cluster's
// state, not one for each resource and retry. The lines of the reflectors have level
// Debug.
//
// The journal reads statuses, so a member never waits for it. A member that is live and
// undisturbed costs only the sweep, some 500 ns for each resource.
type journal struct {
	fleet *Fleet
	cadence
	wake chan struct{} // has a token when there are disturbed members

	// mu guards disturbed: members to be examined soon.
	mu        sync.Mutex
	disturbed map[*Member]struct{}

	// The fields below belong to the goroutine of run.
	logs map[*Member]*memberLog
	sync firstSync
}

func newJournal(f *Fleet) *journal {
	return &journal{fleet: f, cadence: defaultCadence, wake: make(chan struct{}, 1), disturbed: map[*Member]struct{}{}, logs: map[*Member]*memberLog{}}
}

// disturb makes the journal examine a member soon.
func (j *journal) disturb(m *Member) {
	j.mu.Lock()
	j.disturbed[m] = struct{}{}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run examines members until ctx ends.
func (j *journal) run(ctx context.Context) {
	due := time.NewTimer(j.sweep)
	defer due.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		case <-j.wake:
			if timer.Sleep(ctx, j.burst) != nil {
				return
			}
		}
		now := time.Now()
		sweep := now.Sub(swept) >= j.sweep
		if sweep {
			swept = now
		}
		next := j.sweep
		if j.examine(now, sweep) {
			next = j.pace
		}
		due.Reset(next)
	}
}

// examine logs changes of the members that were disturbed or that are not live, or of all
// members. It reports whether to examine members again soon.
func (j *journal) examine(now time.Time, all bool) (again bool) {
	j.mu.Lock()
	disturbed := j.disturbed
	j.disturbed = map[*Member]struct{}{}
	j.mu.Unlock()
	members := j.fleet.Members()
	sum := progress{clusters: len(members)}
	for _, m := range members {
		p := j.logs[m]
		if p == nil {
			p = newMemberLog(m, j.cadence)
			j.logs[m] = p
		}
		if _, ok := disturbed[m]; !ok && !all && p.settled() && j.sync.done {
			continue
		}
		x := m.examine()
		p.update(now, x)
		sum.add(p, x.Status)
		again = again || !p.settled()
	}
	j.forget(members)
	if !j.sync.done && len(members) > 0 {
		j.sync.update(now, sum, j)
		again = true
	}
	return again
}

// forget drops the logs of members that have left.
func (j *journal) forget(members []*Member) {
	there := make(map[*Member]bool, len(members))
	for _, m := range members {
		there[m] = true
	}
	for m := range j.logs {
		if !there[m] {
			delete(j.logs, m)
		}
	}
}

// progress is how far the members of a fleet have synced.
type progress struct {
	clusters, live, unreachable, synced, resources, objects, expected int
}

func (p *progress) add(known *memberLog, s Status) {
	switch {
	case known.down != "":
		p.unreachable++
	case known.live:
		p.live++
	}
	p.synced += s.Synced
	p.resources += s.Resources
	p.objects += s.Objects
	p.expected += s.Expected
}

// firstSync logs the progress of a fleet until every cluster is live or is known to
// be unreachable.
type firstSync struct {
	done bool
	// began is when the fleet first had members. logged is the time of the last line, and
	// last its content.
	began, logged time.Time
	last          progress
}

func (f *firstSync) update(now time.Time, p progress, j *journal) {
	logger := j.fleet.opts.Logger
	if f.began.IsZero() {
		f.began, f.logged = now, now
	}
	f.done = p.live+p.unreachable == p.clusters
	since := now.Sub(f.logged)
	switch {
	case f.done && p.clusters == 1:
		return // the cluster's own line has the same content
	case f.done, since >= j.idle, since >= j.progress && p != f.last:
	default:
		return
	}
	f.logged, f.last = now, p
	args := []any{
		"clusters", p.clusters, "live", p.live, "unreachable", p.unreachable, "resources", p.resources, "synced", p.synced,
		"objects", p.objects, "expected", p.expected, "after", rounded(now.Sub(f.began)),
	}
	if f.done {
		logger.Info("first sync done", args...)
		return
	}
	logger.Info("syncing", args...)
}

// rounded returns a duration rounded for log lines.
func rounded(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// lowered passes records on with level Debug, and calls disturb for each record of a
// higher level. It is the handler of reflectors whose state a journal logs.
type lowered struct {
	slog.Handler
	disturb func()
}

// Enabled always returns true for higher levels than Debug, since Handle must see them
// even if they are not written.
func (h lowered) Enabled(ctx context.Context, level slog.Level) bool {
	return level > slog.LevelDebug || h.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h lowered) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug {
		h.disturb()
		r.Level = slog.LevelDebug
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h lowered) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lowered{h.Handler.WithAttrs(attrs), h.disturb}
}

// WithGroup implements [slog.Handler].
func (h lowered) WithGroup(name string) slog.Handler {
	return lowered{h.Handler.WithGroup(name), h.disturb}
}
