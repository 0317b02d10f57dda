// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/watershed-project/watershed/fleet"
)

// position is a directory that a Join follows. The Join's mu guards the fields in its first
// group.
type position struct {
	entries  []fleet.Entry // of its last report
	reported bool
	failed   bool
	err      error // why it has failed

	directory fleet.Directory
	logged    bool // the error was logged
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// begin begins to follow a directory.
func (j *Join) begin(ctx context.Context, d fleet.Directory) *position {
	p := &position{directory: d}
	ctx, p.cancel = context.WithCancel(ctx)
	p.running.Go(func() {
		err := d.Follow(ctx, func(entries []fleet.Entry) {
			j.set(func() { p.entries, p.reported = entries, true })
		})
		if err != nil {
			j.set(func() { p.failed, p.err = true, err })
		}
	})
	return p
}

// end ceases to follow the directory, and waits for it.
func (p *position) end() {
	if p != nil {
		p.cancel()
		p.running.Wait()
	}
}

// seat is a part of a Join: the directory whose clusters are used, and the one that is to
// replace it when it has reported, nil if there is none.
type seat struct {
	name      string
	now, next *position
	removed   bool
}

// latest returns the directory that is configured.
func (s *seat) latest() *position {
	if s.next != nil {
		return s.next
	}
	return s.now
}

// joinView is one Follow: it merges the parts and notifies the caller.
type joinView struct {
	join *Join
	// uses is the number of the parts that the seats are for.
	uses int
	// seats are in the order of the parts. Those of parts that were removed are the last.
	seats    []*seat
	notifier notifier
	clashes  clashes
	timedOut bool // joinTimeout is over
}

// end ceases to follow all directories.
func (v *joinView) end() {
	for _, s := range v.seats {
		s.next.end()
		s.now.end()
	}
}

// arrange begins to follow the parts if they were replaced, and reports whether they were.
func (v *joinView) arrange(ctx context.Context) bool {
	v.join.mu.Lock()
	parts, uses := v.join.parts, v.join.uses
	v.join.mu.Unlock()
	if uses == v.uses {
		return false
	}
	v.uses = uses
	var seats []*seat
	for _, p := range parts {
		i := slices.IndexFunc(v.seats, func(s *seat) bool { return s.name == p.Name })
		if i < 0 {
			seats = append(seats, &seat{name: p.Name, now: v.join.begin(ctx, p.Directory)})
			continue
		}
		s := v.seats[i]
		v.seats = slices.Delete(v.seats, i, i+1)
		if s.latest().directory != p.Directory {
			s.next.end() // it was replaced before it has reported
			s.next = nil
		}
		if s.latest().directory != p.Directory {
			s.next = v.join.begin(ctx, p.Directory)
		}
		s.removed = false
		seats = append(seats, s)
	}
	for _, s := range v.seats {
		s.removed = true
	}
	v.seats = append(seats, v.seats...)
	return true
}

// update notifies if all parts have reported, or one has and the timeout is over, or the caller
// was notified before. It returns an error if the last part has failed.
func (v *joinView) update() error {
	for _, s := range v.seats {
		if s.next != nil && v.read(s.next).reported {
			s.now.end()
			s.now, s.next = s.next, nil
		}
	}
	if err := v.failure(); err != nil {
		return err
	}
	all, some := true, false
	for _, s := range v.seats {
		latest := v.read(s.latest())
		all = all && (s.removed || latest.reported || latest.failed)
		some = some || !s.removed && v.read(s.now).reported
	}
	settled := all || some && v.timedOut
	if settled {
		v.drop()
	}
	// What is published must be what the caller has, not what a part reports meanwhile.
	entries, states := v.merge()
	if settled || v.notifier.notified {
		v.notifier.update(entries)
	}
	v.publish(states)
	return nil
}

// read returns what a directory has reported.
func (v *joinView) read(p *position) (is struct {
	entries          []fleet.Entry
	reported, failed bool
	err              error
}) {
	v.join.mu.Lock()
	defer v.join.mu.Unlock()
	is.entries = p.entries
	is.reported = p.reported
	is.failed = p.failed
	is.err = p.err
	return is
}

// failure logs the errors of directories that have failed, each once. It returns those that
// were not logged if no directory is left.
func (v *joinView) failure() error {
	var errs []error
	left := len(v.seats) == 0
	for _, s := range v.seats {
		for _, p := range []*position{s.now, s.next} {
			switch {
			case p == nil:
			case !v.read(p).failed:
				left = true
			case !p.logged:
				p.logged = true
				errs = append(errs, fmt.Errorf("%s: %w", nameOf(p.directory), v.read(p).err))
			}
		}
	}
	if !left && len(errs) > 0 {
		return fmt.Errorf("every source of clusters has failed: %w", errors.Join(errs...))
	}
	for _, err := range errs {
		v.join.opts.Logger.Error("source of clusters failed; its clusters stay as they are", "err", err)
	}
	return nil
}

// drop ceases to follow the parts that were removed.
func (v *joinView) drop() {
	v.seats = slices.DeleteFunc(v.seats, func(s *seat) bool {
		if s.removed {
			s.next.end()
			s.now.end()
		}
		return s.removed
	})
}

// complain logs the parts that have not reported when the Join ceases to wait for them.
func (v *joinView) complain() {
	for _, s := range v.seats {
		if p := v.read(s.latest()); !s.removed && !p.reported && !p.failed {
			v.join.opts.Logger.Warn("source of clusters has not reported; the clusters that it had stay as they are",
				"source", nameOf(s.latest().directory))
		}
	}
}

// merge returns the entries of all parts, without those whose name an earlier part has, and the
// states of the parts.
func (v *joinView) merge() (entries []fleet.Entry, states []publishedState) {
	defer v.clashes.done()
	v.join.mu.Lock()
	defer v.join.mu.Unlock()
	type place struct{ seat, entry int }
	first := map[string]place{} // the seat that a name was taken from, and the index of its entry
	for i, s := range v.seats {
		for _, e := range s.now.entries {
			used, ok := first[e.Name]
			if !ok {
				first[e.Name] = place{i, len(entries)}
				e.Labels = joinLabels(e.Labels, maps.Clone(v.join.labels[e.Name]))
				entries = append(entries, e)
				continue
			}
			if s.removed {
				continue // another part has the cluster now
			}
			taken := &entries[used.entry]
			taken.Shadowed = append(slices.Clip(taken.Shadowed), nameOf(s.now.directory))
			if v.clashes.add(fmt.Sprintf("%d/%s", i, e.Name)) {
				v.join.opts.Logger.Warn("cluster left out: an earlier source has one of the same name",
					"cluster", e.Name, "source", nameOf(s.now.directory), "used",
					nameOf(v.seats[used.seat].now.directory))
			}
		}
		if p := s.latest(); !s.removed {
			states = append(states, publishedState{
				fleet.SourceState{
					Name:     nameOf(p.directory),
					Reported: p.reported && s.next == nil,
					Clusters: len(s.now.entries),
					Err:      p.err,
				},
				p.directory,
			})
		}
	}
	return entries, states
}

// publish makes the states of the parts those of [Join.Sources]. Before the first report the
// caller has no clusters of any part.
func (v *joinView) publish(states []publishedState) {
	for i := range states {
		states[i].Reported = states[i].Reported && v.notifier.notified
	}
	v.join.mu.Lock()
	defer v.join.mu.Unlock()
	v.join.published = states
}
