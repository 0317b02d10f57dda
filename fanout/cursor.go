// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"context"
	"fmt"
	"slices"

	"github.com/watershed-project/watershed/store"
)

// Cursor is the position of a reader in a log. It is used by one goroutine at a time and
// needs no closing.
type Cursor[T any] struct {
	log      *Log[T]
	interest Interest
	// dimension, value and mark are those of the interest. A nil dimension stands for
	// everything.
	dimension *dimension[T]
	value     Value
	mark      mark
	// after is the revision up to which every change was delivered or cannot concern the
	// reader.
	after uint64
	// lap is how many changes may pass a waiting reader; 0 means any number.
	lap uint64
	// batch is a buffer that a filtering cursor reuses for as long as there is something
	// to read.
	batch []store.Change[T]
}

// Cursor returns a cursor for the changes after a revision, usually that of a snapshot.
// The only error is [ErrNoDimension]. The cursor misses no change in the window, however
// old the revision is and whether or not the dimension was used before: the window is
// filtered while it is read, and a reader waits only after it has read all of it.
func (l *Log[T]) Cursor(after uint64, interest Interest) (*Cursor[T], error) {
	l.mu.Lock()
	d, err := l.waiting.dimensionLocked(interest)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c := &Cursor[T]{log: l, interest: interest, dimension: d, after: after}
	if d != nil {
		c.value, c.mark = ValueOf(interest.value), d.markOf(interest.value)
	}
	return c, nil
}

// Lap limits how many changes that do not concern the reader may pass while it waits.
// After at most so many, Next returns without changes, and the position has moved on. It
// is for a reader that keeps data as old as its position.
func (c *Cursor[T]) Lap(changes uint64) { c.lap = changes }

// Position returns the revision up to which the reader has seen everything that can
// concern it.
func (c *Cursor[T]) Position() uint64 { return c.after }

// Next returns the next changes, at least one and at most 64, and waits if there are
// none. The slice must not be modified. Unless the reader is interested in everything, it
// is valid only until the next call. Available changes are returned even if ctx is done.
// After a [Cursor.Lap] Next returns no changes.
//
// After [ErrExpired] the cursor stays where it is. Its owner takes a snapshot and opens
// another cursor.
func (c *Cursor[T]) Next(ctx context.Context) ([]store.Change[T], error) {
	return c.NextUntil(ctx, nil)
}

// NextUntil is [Cursor.Next], but returns no changes when due is closed while it waits.
// Many readers can share one channel, which costs less than a context for each of them.
func (c *Cursor[T]) NextUntil(ctx context.Context, due <-chan struct{}) ([]store.Change[T], error) {
	for {
		batch, err := c.read()
		if err != nil || len(batch) > 0 {
			return batch, err
		}
		if early, err := c.wait(ctx, due); early || err != nil {
			return nil, err
		}
	}
}

// TryNext is Next without waiting: it returns no changes if there are none.
func (c *Cursor[T]) TryNext() ([]store.Change[T], error) { return c.read() }

// read returns the next changes in the window, possibly none. It takes no lock.
func (c *Cursor[T]) read() ([]store.Change[T], error) {
	w := c.log.window.Load()
	if c.after < w.after {
		c.log.expired.Add(1)
		return nil, fmt.Errorf("read %s after revision %d: %w", c.interest, c.after, ErrExpired)
	}
	clear(c.batch)
	c.batch = c.batch[:0]
	for _, chunk := range w.from(c.after) {
		changes := chunk.seen()
		i, _ := slices.BinarySearchFunc(changes, c.after+1, byRevision[T])
		if i == len(changes) {
			continue
		}
		if c.dimension == nil {
			c.after = changes[len(changes)-1].Revision
			return changes[i:], nil
		}
		column := chunk.column(c.dimension)
		for ; i < len(changes); i++ {
			c.after = changes[i].Revision
			if c.concerned(column, &changes[i], i) {
				if c.batch = append(c.batch, changes[i]); len(c.batch) == chunkSize {
					return c.batch, nil
				}
			}
		}
	}
	return c.batch, nil
}

// concerned reports whether the change at index i of a chunk can concern the reader, which
// is not interested in everything. column is the chunk's column of its dimension, if
// there is one.
func (c *Cursor[T]) concerned(column *column[T], change *store.Change[T], i int) bool {
	if column != nil {
		was, is := column.values(change, i)
		return was == c.value || is == c.value || was == AnyValue || is == AnyValue
	}
	d := c.dimension
	if d.part != nil {
		part, ok := d.part(change.Key)
		return ok && part == c.interest.value
	}
	was, is := d.states(change)
	return slices.Contains(is, c.value) || slices.Contains(was, c.value)
}

// wait returns when there may be something to read, or the wait has ended with an error.
// It reports true after a lap, and when due was closed.
func (c *Cursor[T]) wait(ctx context.Context, due <-chan struct{}) (early bool, err error) {
	l := c.log
	c.batch = nil // an idle reader keeps no buffer
	l.mu.Lock()
	if l.last > c.after {
		l.mu.Unlock()
		return false, nil
	}
	select {
	case <-l.closed:
		l.mu.Unlock()
		return false, ErrClosed
	default:
	}
	t := l.waiting.joinLocked(c.dimension, c.value, c.mark)
	var lap <-chan struct{}
	if c.lap > 0 {
		lap = l.waiting.lapLocked(c.lap)
	}
	l.mu.Unlock()

	select {
	case <-t.woken:
	case <-lap:
		early = true
	case <-l.closed:
	case <-due:
		early = true
	case <-ctx.Done():
		err = fmt.Errorf("wait for %s: %w", c.interest, context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// No change before the one that fired can concern this reader. If none has fired, no
	// change so far can.
	if t.fired != 0 {
		c.after = max(c.after, t.fired-1)
		return false, nil
	}
	l.waiting.leaveLocked(c.dimension, c.value, t)
	c.after = max(c.after, l.last)
	return early, err
}
