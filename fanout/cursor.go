// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"context"
	"fmt"
	"slices"

	"github.com/watershed-project/watershed/store"
)

// Cursor is a reader's place in a log. It is used by one goroutine at a time
// and needs no closing.
type Cursor[T any] struct {
	log      *Log[T]
	interest Interest
	// dimension, value and mark are the interest's; a nil dimension is
	// everything.
	dimension *dimension[T]
	value     Value
	mark      mark
	// after is the revision up to which everything was delivered, or cannot
	// concern the reader.
	after uint64
	// lap is how many changes may pass a waiting reader; 0 is any number.
	lap uint64
	// batch is reused by a cursor that filters, while there is something to read.
	batch []store.Change[T]
}

// Cursor returns a reader of the changes after the given revision, usually a
// snapshot's. The only error is [ErrNoDimension]. It misses nothing, however long ago
// the revision is and whether or not another reader has used the dimension before: the
// window is filtered while it is read, and only a reader that has read all of it waits.
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

// Lap limits how many changes that do not concern the reader pass while it waits: after
// at most so many, Next returns without changes, and the position has moved on. It is
// for a reader that holds something as old as its position.
func (c *Cursor[T]) Lap(changes uint64) { c.lap = changes }

// Position is the revision up to which the reader has seen everything that can
// concern it.
func (c *Cursor[T]) Position() uint64 { return c.after }

// Next returns the next changes, at least one and at most 64, and waits for them
// if there are none. The slice must not be changed, and unless the reader is
// interested in everything it is lent until the next call. What is there is
// returned even if ctx is done. After a [Cursor.Lap] it returns nothing.
//
// After [ErrExpired] the cursor stays where it is: its owner takes a snapshot
// and opens another.
func (c *Cursor[T]) Next(ctx context.Context) ([]store.Change[T], error) {
	return c.NextUntil(ctx, nil)
}

// NextUntil is [Cursor.Next], but returns nothing when due is closed while it waits. Many
// readers can share one channel, which costs less than a context for each of them.
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

// TryNext is Next without waiting: it returns nothing if there is nothing.
func (c *Cursor[T]) TryNext() ([]store.Change[T], error) { return c.read() }

// read takes what is in the window. It takes no lock.
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
			if c.dimension.touches(column, &changes[i], i, c.interest.value, c.value) {
				if c.batch = append(c.batch, changes[i]); len(c.batch) == chunkSize {
					return c.batch, nil
				}
			}
		}
	}
	return c.batch, nil
}

func byRevision[T any](c store.Change[T], revision uint64) int {
	switch {
	case c.Revision < revision:
		return -1
	case c.Revision > revision:
		return 1
	default:
		return 0
	}
}

// wait returns when there is something to read, or never will be. It reports true after a
// lap, and when due was closed.
func (c *Cursor[T]) wait(ctx context.Context, due <-chan struct{}) (early bool, err error) {
	l := c.log
	c.batch = nil // an idle reader holds no buffer
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
	// Nothing before the change that fired could concern this reader; nor could
	// anything at all, if none has.
	if t.fired != 0 {
		c.after = max(c.after, t.fired-1)
		return false, nil
	}
	l.waiting.leaveLocked(c.dimension, c.value, t)
	c.after = max(c.after, l.last)
	return early, err
}
