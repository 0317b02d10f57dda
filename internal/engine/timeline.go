// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/catchup"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

type (
	// Snapshot is the state of a life at a moment.
	Snapshot = store.Snapshot[*wire.Object]
	// Change is a change between two states of a life.
	Change = store.Change[*wire.Object]
	// Changes is what a follower reads.
	Changes = catchup.Changes[*wire.Object]
)

const (
	// minMarkGap is the minimum number of changes between two marks. A reader keeps at
	// most about as many of the changes that it has seen.
	minMarkGap = 1024
	// averageChange is the assumed average size of a change, in bytes. It sets the
	// log's limit of changes, so that larger changes reach the limit of bytes first.
	averageChange = 1 << 10
	// minLogChanges is the minimum of the log's limit of changes.
	minLogChanges = 10_000
	// changeOverhead is the size of a change in the log besides its states, in bytes.
	changeOverhead = 120
)

// timeline is the state of a life's objects and its recent past: the store, the log of its
// changes, and earlier snapshots.
type timeline struct {
	store *store.Store[*wire.Object]
	log   *fanout.Log[*wire.Object]
	// marks are snapshots at positions in the log's window, oldest first. There are
	// none if the window is too small for two.
	marks   atomic.Pointer[[]*Snapshot]
	marking bool
}

// initTimeline sets up an empty timeline. window is [Options.Window], and attribute returns the
// attributes of objects that have columns.
func (t *timeline) initTimeline(window int64, attribute func(*wire.Object, string) (string, bool)) {
	t.marks.Store(new([]*Snapshot))
	t.store = store.New((*wire.Object).Key, &store.Options[*wire.Object]{
		Same: wire.Same, Older: older, Attribute: attribute,
	})
	if window <= 0 {
		window = 64 << 20
	}
	t.marking = window >= minMarkGap*averageChange
	// A quarter is left for the states that readers hold after they fell out of the
	// log.
	t.log = fanout.New(&fanout.Options[*wire.Object]{
		Bytes: max(1, window/4*3), Size: size, Count: max(minLogChanges, int(window/averageChange)),
	})
}

// older reports whether now is an earlier state than old. Versions that are not numbers
// have no order.
func older(old, now *wire.Object) bool {
	return now.Version() < old.Version() && now.Version() != 0
}

// size returns the bytes that a change keeps from being freed: the state that it
// replaced.
func size(c Change) int {
	n := 0
	if c.Old != nil {
		n += c.Old.Size()
	}
	if c.Type == delta.Deleted {
		n += c.New.Size()
	}
	return changeOverhead + n + n/8 // the allocator rounds up
}

// mark keeps the current snapshot if it is far enough from the last mark.
func (t *timeline) mark() {
	if !t.marking {
		return
	}
	now := t.store.Snapshot()
	marks := *t.marks.Load()
	if n := len(marks); n > 0 && now.Revision() < marks[n-1].Revision()+minMarkGap {
		return
	}
	t.remark(now)
}

// remark drops the marks that have left the log's window, and adds more. A mark must
// not keep objects that the log does not keep.
func (t *timeline) remark(more ...*Snapshot) {
	after := t.log.Stats().After
	for {
		marks := t.marks.Load()
		next := make([]*Snapshot, 0, len(*marks)+len(more))
		for _, mark := range *marks {
			if mark.Revision() >= after {
				next = append(next, mark)
			}
		}
		next = append(next, more...)
		if t.marks.CompareAndSwap(marks, &next) {
			return
		}
	}
}

// markAt returns the newest mark that is not after a revision, or nil.
func (t *timeline) markAt(revision uint64) *Snapshot {
	marks := *t.marks.Load()
	for i := len(marks) - 1; i >= 0; i-- {
		if marks[i].Revision() <= revision {
			return marks[i]
		}
	}
	return nil
}

// tidy drops changes and marks that have left the log's window, also when nothing is
// written.
func (t *timeline) tidy() {
	t.log.Expire()
	t.remark()
}

// readers are the readers of a life that have not started. They start at the first state that
// is current: that of the first list, or the stored state when it has caught up.
type readers struct {
	timeline *timeline
	// synced is closed when they start.
	synced chan struct{}

	// mu guards the fields below.
	mu      sync.Mutex
	joining map[*Follower]struct{}
	started bool
}

// initReaders sets up the readers of a timeline.
func (r *readers) initReaders(t *timeline) {
	r.timeline = t
	r.synced = make(chan struct{})
}

// Synced returns a channel that is closed when the first list is stored, or the stored state
// has caught up with the server.
func (r *readers) Synced() <-chan struct{} { return r.synced }

// startReaders starts the waiting readers at the first state that is current.
func (r *readers) startReaders(first *Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = true
	for f := range r.joining {
		f.start(first)
	}
	r.joining = nil
	close(r.synced)
}

// Follow returns a reader of the life. It starts at the current state or, before the
// life has synced, at the state of the first list. Until then it must not be used, and
// an owner that stops waiting must call Unfollow. A reader holds the state that it
// starts at, as any slow reader does.
func (r *readers) Follow() *Follower {
	f := &Follower{timeline: r.timeline}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		f.start(r.timeline.store.Snapshot())
	} else {
		if r.joining == nil {
			r.joining = map[*Follower]struct{}{}
		}
		r.joining[f] = struct{}{}
	}
	return f
}

// Unfollow drops a reader that has not started.
func (r *readers) Unfollow(f *Follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.joining, f)
}

// Follower reads a life's timeline for one reader, starting from a snapshot. It is its own
// [catchup.Source].
type Follower struct {
	catchup.Follower[*Snapshot, *wire.Object]
	timeline *timeline
	expired  uint64
}

// Expired returns how often the reader fell out of the log's window.
func (f *Follower) Expired() uint64 { return f.expired }

// start begins at a state of the timeline.
func (f *Follower) start(base *Snapshot) { f.Start(base, f) }

// Next waits for changes. The reader must have read all changes that it received
// before.
func (f *Follower) Next(ctx context.Context) (Changes, error) {
	changes, err := f.Follower.Next(ctx, f)
	if changes.Differences() {
		f.expired++
	}
	return changes, err
}

// Newest implements [catchup.Source].
func (f *Follower) Newest() *Snapshot { return f.timeline.store.Snapshot() }

// Open implements [catchup.Source].
func (f *Follower) Open(revision uint64) *fanout.Cursor[*wire.Object] {
	c, _ := f.timeline.log.Cursor(revision, fanout.Everything()) // fails only for interests with a dimension
	return c
}

// Own implements [catchup.Source]. The log lends batches only to cursors that filter.
func (*Follower) Own(batch []Change) []Change { return batch }

// Newer implements [catchup.Source]. It returns the newest snapshot if the reader has
// caught up with it, or else the last mark that the reader has passed. Neither has a
// cost, because other readers share them.
func (f *Follower) Newer(base *Snapshot, position uint64, seen int, _ catchup.Occasion) *Snapshot {
	if seen == 0 {
		return nil
	}
	if now := f.timeline.store.Snapshot(); now.Revision() == position {
		return now
	}
	if mark := f.timeline.markAt(position); mark != nil && mark.Revision() > base.Revision() {
		return mark
	}
	return nil
}

// Key implements [catchup.Objects].
func (*Follower) Key(c *Change) catchup.Key { return catchup.Key{Object: c.Key} }

// Get implements [catchup.Objects].
func (*Follower) Get(s *Snapshot, key catchup.Key) *wire.Object {
	o, _ := s.Get(key.Object)
	return o
}

// Same implements [catchup.Objects].
func (*Follower) Same(a, b *wire.Object) bool { return wire.Same(a, b) }

// Diff implements [catchup.Objects].
func (*Follower) Diff(from, to *Snapshot) iter.Seq[*Change] {
	return func(yield func(*Change) bool) {
		for c := range store.Diff(from, to) {
			if !yield(&c) {
				return
			}
		}
	}
}
