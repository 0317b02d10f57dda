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

// journal logs the life of a fleet's members: one line for each change of a cluster's
// state, not one for each resource and retry. The lines of the reflectors have level
// Debug.
//
// The journal reads statuses, so a member never waits for it. A member that is live and
// undisturbed costs only the sweep, some 500 ns for each resource.
type journal struct {
	members func() []*Member
	logger  *slog.Logger
	cadence
	wake chan struct{} // has a token when there are disturbed members

	// mu guards disturbed: members to be examined soon.
	mu        sync.Mutex
	disturbed map[*Member]struct{}

	// The fields below belong to the goroutine of run.
	logs map[*Member]*memberLog
	sync firstSync
}

// mostNamed is the number of clusters up to which each has a line of its own at the end of
// its first sync. Of more of them only the progress of all is logged.
const mostNamed = 100

// newJournal returns a journal of the members that a function returns.
func newJournal(members func() []*Member, logger *slog.Logger) *journal {
	return &journal{members: members, logger: logger, cadence: defaultCadence, wake: make(chan struct{}, 1), disturbed: map[*Member]struct{}{}, logs: map[*Member]*memberLog{}}
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
	members := j.members()
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
		p.level = slog.LevelInfo
		if !j.sync.done && len(members) > mostNamed {
			p.level = slog.LevelDebug
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
		j.logger.Info("first sync done", args...)
		return
	}
	j.logger.Info("syncing", args...)
}
