// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package journal

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/internal/timer"
)

// Member is a cluster as a journal sees it. Two values are equal if they are the same member.
type Member interface {
	// Logger returns the logger of the cluster.
	Logger() *slog.Logger
	// Examine returns the present state.
	Examine() Examination
	// Observe is called with the statuses of all resources at each examination.
	Observe(now time.Time, all []health.ResourceStatus)
	// RequestDiscovery makes the member run discovery soon.
	RequestDiscovery()
}

// Examination has everything that a journal needs about a member at one moment.
type Examination struct {
	health.Status
	// Joined is when the member joined.
	Joined time.Time
	// Discovery is the error of the last discovery, or of its missing parts.
	Discovery error
	// Unlisted is the error of the directory.
	Unlisted error
	// All has the statuses of all resources.
	All []health.ResourceStatus
}

// Journal logs the life of a fleet's members: one line for each change of a cluster's
// state, not one for each resource and retry. The lines of the reflectors have level
// Debug.
//
// The journal reads statuses, so a member never waits for it. A member that is live and
// undisturbed costs only the sweep, some 500 ns for each resource.
type Journal struct {
	// Cadence is the timing. It is set before [Journal.Run].
	Cadence Cadence

	members func() []Member
	logger  *slog.Logger
	wake    chan struct{} // has a token when there are disturbed members

	// mu guards disturbed: members to be examined soon.
	mu        sync.Mutex
	disturbed map[Member]struct{}

	// The fields below belong to the goroutine of Run.
	logs map[Member]*memberLog
	sync firstSync
}

// Cadence is the timing of a journal.
type Cadence struct {
	// Pace is how often members are examined that are not live, or in which something
	// fails. The others are examined once every Sweep.
	Pace, Sweep time.Duration
	// Burst is how long the journal waits after a failure for related ones.
	Burst time.Duration
	// Failure is how long something must fail before that is logged. The first retry of a
	// list or watch comes within 1.6 s, and most failures end with it. Patience is the
	// same limit for discovery and the directory, which are read less often, and for
	// resources that fail without a response.
	Failure, Patience time.Duration
	// Progress is how often the progress of the first sync is logged, and Idle how often
	// while nothing progresses.
	Progress, Idle time.Duration
}

// DefaultCadence is the timing outside tests.
var DefaultCadence = Cadence{
	Pace: time.Second, Sweep: time.Minute, Burst: 250 * time.Millisecond,
	Failure: 3 * time.Second, Patience: 10 * time.Second,
	Progress: 5 * time.Second, Idle: time.Minute,
}

// mostNamed is the number of clusters up to which each has a line of its own at the end of
// its first sync. Of more of them only the progress of all is logged.
const mostNamed = 100

// New returns a journal of the members that a function returns.
func New(members func() []Member, logger *slog.Logger) *Journal {
	return &Journal{
		members: members, logger: logger, Cadence: DefaultCadence, wake: make(chan struct{}, 1),
		disturbed: map[Member]struct{}{}, logs: map[Member]*memberLog{},
	}
}

// Disturb makes the journal examine a member soon.
func (j *Journal) Disturb(m Member) {
	j.mu.Lock()
	j.disturbed[m] = struct{}{}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Run examines members until ctx ends.
func (j *Journal) Run(ctx context.Context) {
	due := time.NewTimer(j.Cadence.Sweep)
	defer due.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		case <-j.wake:
			if timer.Sleep(ctx, j.Cadence.Burst) != nil {
				return
			}
		}
		now := time.Now()
		sweep := now.Sub(swept) >= j.Cadence.Sweep
		if sweep {
			swept = now
		}
		next := j.Cadence.Sweep
		if j.examine(now, sweep) {
			next = j.Cadence.Pace
		}
		due.Reset(next)
	}
}

// examine logs changes of the members that were disturbed or that are not live, or of all
// members. It reports whether to examine members again soon.
func (j *Journal) examine(now time.Time, all bool) (again bool) {
	j.mu.Lock()
	disturbed := j.disturbed
	j.disturbed = map[Member]struct{}{}
	j.mu.Unlock()
	members := j.members()
	sum := progress{clusters: len(members)}
	for _, m := range members {
		p := j.logs[m]
		if p == nil {
			p = newMemberLog(m, j.Cadence)
			j.logs[m] = p
		}
		if _, ok := disturbed[m]; !ok && !all && p.settled() && j.sync.done {
			continue
		}
		p.level = slog.LevelInfo
		if !j.sync.done && len(members) > mostNamed {
			p.level = slog.LevelDebug
		}
		x := m.Examine()
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
func (j *Journal) forget(members []Member) {
	there := make(map[Member]bool, len(members))
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

func (p *progress) add(known *memberLog, s health.Status) {
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

func (f *firstSync) update(now time.Time, p progress, j *Journal) {
	if f.began.IsZero() {
		f.began, f.logged = now, now
	}
	f.done = p.live+p.unreachable == p.clusters
	since := now.Sub(f.logged)
	switch {
	case f.done, since >= j.Cadence.Idle, since >= j.Cadence.Progress && p != f.last:
	default:
		return
	}
	f.logged, f.last = now, p
	args := []any{
		"clusters", p.clusters, "live", p.live, "unreachable", p.unreachable, "resources", p.resources, "synced",
		p.synced,
		"objects", p.objects, "expected", p.expected, "after", rounded(now.Sub(f.began)),
	}
	if f.done {
		j.logger.Info("first sync done", args...)
		return
	}
	j.logger.Info("syncing", args...)
}
