// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"iter"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/catchup"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// changes is what a follower reads.
type changes = catchup.Changes[*wire.Object]

// follower reads a life's timeline for one reader, starting from a snapshot. It is its own
// [catchup.Source].
type follower struct {
	catchup.Follower[*snapshot, *wire.Object]
	timeline *timeline
	// expired counts how often the reader fell out of the log's window.
	expired uint64
}

// start begins at a state of the timeline.
func (f *follower) start(base *snapshot) { f.Start(base, f) }

// next waits for changes. The reader must have read all changes that it received
// before.
func (f *follower) next(ctx context.Context) (changes, error) {
	changes, err := f.Next(ctx, f)
	if changes.Differences() {
		f.expired++
	}
	return changes, err
}

// Newest implements [catchup.Source].
func (f *follower) Newest() *snapshot { return f.timeline.store.Snapshot() }

// Open implements [catchup.Source].
func (f *follower) Open(revision uint64) *fanout.Cursor[*wire.Object] {
	c, _ := f.timeline.log.Cursor(revision, fanout.Everything()) // fails only for interests with a dimension
	return c
}

// Own implements [catchup.Source]. The log lends batches only to cursors that filter.
func (*follower) Own(batch []change) []change { return batch }

// Newer implements [catchup.Source]. It returns the newest snapshot if the reader has
// caught up with it, or else the last mark that the reader has passed. Neither has a
// cost, because other readers share them.
func (f *follower) Newer(base *snapshot, position uint64, seen int, _ catchup.Occasion) *snapshot {
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
func (*follower) Key(c *change) catchup.Key { return catchup.Key{Object: c.Key} }

// Get implements [catchup.Objects].
func (*follower) Get(s *snapshot, key catchup.Key) *wire.Object {
	o, _ := s.Get(key.Object)
	return o
}

// Same implements [catchup.Objects].
func (*follower) Same(a, b *wire.Object) bool { return wire.Same(a, b) }

// Diff implements [catchup.Objects].
func (*follower) Diff(from, to *snapshot) iter.Seq[*change] {
	return func(yield func(*change) bool) {
		for c := range store.Diff(from, to) {
			if !yield(&c) {
				return
			}
		}
	}
}
