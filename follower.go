// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// follower reads a life from a snapshot on, for one reader. When the reader falls
// out of the log's window, it goes on with the differences between what the
// reader has seen and what there is now.
//
// What the reader has seen is base and, on top of it, the changes in seen. Base is
// renewed whenever the reader has caught up, or passes a mark, so that seen stays
// short.
type follower struct {
	life   *life
	cursor *fanout.Cursor[*wire.Object]
	base   *snapshot
	seen   [][]change
	// batch is what next returned and the reader is reading.
	batch []change
	// expired counts how often the reader fell out of the window.
	expired uint64
}

// start makes a state, of the life's store, what the reader has seen.
func (f *follower) start(base *snapshot) {
	f.base, f.seen, f.batch = base, nil, nil
	f.cursor, _ = f.life.log.Cursor(f.base.Revision(), fanout.Everything()) // has no dimension to lack
}

// next waits for changes. The reader must have read all of those it was given
// before.
func (f *follower) next(ctx context.Context) (iter.Seq[*change], error) {
	f.settle()
	batch, err := f.cursor.Next(ctx)
	if errors.Is(err, fanout.ErrExpired) {
		f.expired++
		from, seen := f.base, f.seen
		f.start(f.life.store.Snapshot())
		return missed(from, seen, f.base), nil
	}
	if err != nil {
		return nil, err
	}
	f.batch = batch
	return func(yield func(*change) bool) {
		for i := range batch {
			if !yield(&batch[i]) {
				return
			}
		}
	}, nil
}

// position is the revision up to which the reader was given everything.
func (f *follower) position() uint64 { return f.cursor.Position() }

// settle counts the last batch as seen.
func (f *follower) settle() {
	if len(f.batch) == 0 {
		return
	}
	position := f.batch[len(f.batch)-1].Revision
	if now := f.life.store.Snapshot(); now.Revision() == position {
		f.base, f.batch = now, nil
		clear(f.seen)
		f.seen = f.seen[:0]
		return
	}
	f.seen = append(f.seen, f.batch)
	f.batch = nil
	if mark := f.life.markAt(position); mark != nil && mark.Revision() > f.base.Revision() {
		f.base = mark
		f.seen = slices.DeleteFunc(f.seen, func(batch []change) bool { return batch[len(batch)-1].Revision <= mark.Revision() })
	}
}

// missed yields what must be told to a reader who knows base and the changes seen
// since, so that it knows now.
func missed(base *snapshot, seen [][]change, now *snapshot) iter.Seq[*change] {
	return func(yield func(*change) bool) {
		last := map[string]*wire.Object{} // nil: saw it go
		for _, batch := range seen {
			for i := range batch {
				c := &batch[i]
				if c.Revision <= base.Revision() {
					continue
				}
				if last[c.Key] = c.New; c.Type == delta.Deleted {
					last[c.Key] = nil
				}
			}
		}
		for c := range store.Diff(base, now) {
			if saw, ok := last[c.Key]; ok {
				delete(last, c.Key)
				if !correct(&c, saw) {
					continue
				}
			}
			if !yield(&c) {
				return
			}
		}
		// What came after base, was seen, and is gone again.
		for _, key := range slices.Sorted(maps.Keys(last)) {
			if o := last[key]; o != nil {
				c := change{Type: delta.Deleted, Missed: true, Key: key, Old: o, New: o, Revision: now.Revision()}
				if !yield(&c) {
					return
				}
			}
		}
	}
}

// correct makes of a change since base one since what the reader saw, and reports
// whether there is anything left to tell.
func correct(c *change, saw *wire.Object) bool {
	gone := c.Type == delta.Deleted
	switch {
	case saw == nil && gone, !gone && saw == c.New:
		return false
	case saw == nil:
		c.Type, c.Old = delta.Added, nil
	case gone:
		c.Old, c.New = saw, saw
	default:
		c.Type, c.Old = delta.Updated, saw
	}
	return true
}
