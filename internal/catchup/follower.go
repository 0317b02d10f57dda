// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package catchup

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
)

// Occasion is when a follower looks for a newer base.
type Occasion int

const (
	// Reading means that the reader has taken changes, and more may follow.
	Reading Occasion = iota
	// CaughtUp means that the reader has taken all changes of the log.
	CaughtUp
	// Lapped means that the cursor has returned without changes: see
	// [fanout.Cursor.Lap].
	Lapped
)

// Source is a sequence of states S, and the log of the changes of objects T between
// them. It is passed to the methods of a [Follower], which keeps no reference to it.
type Source[S State, T comparable] interface {
	Objects[S, T]
	// Newest returns the current state.
	Newest() S
	// Open returns a cursor for the changes after a revision.
	Open(revision uint64) *fanout.Cursor[T]
	// Own returns the changes of a batch that the reader is to receive, in a slice that
	// the follower may keep. It is empty, and not nil, if there are none.
	Own(batch []store.Change[T]) []store.Change[T]
	// Newer returns a state that is to replace base, or the zero value if there is
	// none or it would not be worth its cost. The reader is at position and has seen so
	// many changes since base. A state after position becomes the base when the
	// reader has reached it.
	Newer(base S, position uint64, seen int, o Occasion) S
}

// Changes are the next changes for a reader.
type Changes[T any] struct {
	// batch has changes of the log, and is nil if they are differences.
	batch       []store.Change[T]
	differences iter.Seq[*store.Change[T]]
}

// None reports whether there was nothing to read.
func (c Changes[T]) None() bool { return c.batch == nil && c.differences == nil }

// Differences reports whether the changes were computed from two states, because the
// log did not have them.
func (c Changes[T]) Differences() bool { return c.differences != nil }

// All yields the changes. It is an [iter.Seq]: range over the method.
func (c Changes[T]) All(yield func(*store.Change[T]) bool) {
	if c.differences != nil {
		c.differences(yield)
		return
	}
	for i := range c.batch {
		if !yield(&c.batch[i]) {
			return
		}
	}
}

// Follower reads a log for one reader, from a state on. It is used by one goroutine at a
// time. The zero value must be started.
//
// The reader has seen base and, on top of it, the changes in seen.
type Follower[S State, T comparable] struct {
	cursor *fanout.Cursor[T]
	// base is the zero value if the reader began after a revision whose state is not
	// known, until it reaches later.
	base S
	// later is a state after the reader's position. It becomes the base when the reader
	// has reached it.
	later S
	seen  [][]store.Change[T]
	// count is the number of changes in seen.
	count int
}

// Start begins at a state.
func (f *Follower[S, T]) Start(base S, source Source[S, T]) {
	*f = Follower[S, T]{base: base, cursor: source.Open(base.Revision())}
}

// StartAfter begins after a revision whose state is not known. Until the reader has
// reached later, a newer state, all changes must be in the log: if they are not, Next
// returns [fanout.ErrExpired].
func (f *Follower[S, T]) StartAfter(revision uint64, later S, source Source[S, T]) {
	*f = Follower[S, T]{later: later, cursor: source.Open(revision)}
}

// Base returns the state that the follower holds. After Start it is the state that the
// follower began at.
func (f *Follower[S, T]) Base() S { return f.base }

// Position returns the revision up to which the reader has received everything.
func (f *Follower[S, T]) Position() uint64 { return f.cursor.Position() }

// Next waits for changes. The reader must read them before it calls Next again, and
// must not modify them.
func (f *Follower[S, T]) Next(ctx context.Context, source Source[S, T]) (Changes[T], error) {
	return f.NextUntil(ctx, nil, source)
}

// NextUntil is [Follower.Next], but returns [Changes.None] when due is closed while it
// waits.
func (f *Follower[S, T]) NextUntil(ctx context.Context, due <-chan struct{}, source Source[S, T]) (Changes[T], error) {
	if changes, err := f.TryNext(source); !changes.None() || err != nil {
		return changes, err
	}
	for {
		batch, err := f.cursor.NextUntil(ctx, due)
		if err != nil || len(batch) > 0 {
			return f.take(batch, err, source)
		}
		f.renew(f.count, Lapped, source)
		select {
		case <-due:
			return Changes[T]{}, nil
		default: // it was a lap
		}
	}
}

// TryNext is Next without waiting. It returns [Changes.None] if the reader has caught up.
func (f *Follower[S, T]) TryNext(source Source[S, T]) (Changes[T], error) {
	batch, err := f.cursor.TryNext()
	if err == nil && len(batch) == 0 {
		f.renew(f.count, CaughtUp, source)
		return Changes[T]{}, nil
	}
	return f.take(batch, err, source)
}

// take returns what the cursor has read, or the differences if the log has dropped it.
func (f *Follower[S, T]) take(batch []store.Change[T], err error, source Source[S, T]) (Changes[T], error) {
	if errors.Is(err, fanout.ErrExpired) {
		f.advance() // there may have been no changes for the reader on the way to later
		if base, seen := f.base, f.seen; base != *new(S) {
			f.Start(source.Newest(), source)
			return Changes[T]{differences: missed(source, base, seen, f.base)}, nil
		}
	}
	if err != nil {
		return Changes[T]{}, err
	}
	batch = source.Own(batch)
	f.settle(batch, source)
	return Changes[T]{batch: batch}, nil
}

// settle counts a batch as seen. Changes of it that the reader leaves unread are not
// returned again.
func (f *Follower[S, T]) settle(batch []store.Change[T], source Source[S, T]) {
	f.renew(f.count+len(batch), Reading, source)
	if len(batch) == 0 || f.base != *new(S) && batch[len(batch)-1].Revision <= f.base.Revision() {
		return
	}
	f.seen = append(f.seen, batch)
	f.count += len(batch)
}

// renew looks for a newer base, unless there is one that the reader has not reached.
func (f *Follower[S, T]) renew(seen int, o Occasion, source Source[S, T]) {
	if f.later == *new(S) {
		f.later = source.Newer(f.base, f.cursor.Position(), seen, o)
	}
	f.advance()
}

// advance makes later the base if the reader has reached it.
func (f *Follower[S, T]) advance() {
	if f.later == *new(S) || f.later.Revision() > f.cursor.Position() {
		return
	}
	revision := f.later.Revision()
	f.base, f.later, f.count = f.later, *new(S), 0
	f.seen = slices.DeleteFunc(f.seen, func(batch []store.Change[T]) bool {
		return batch[len(batch)-1].Revision <= revision
	})
	for _, batch := range f.seen {
		f.count += len(batch)
	}
}
