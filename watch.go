// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/undecodable"
	"github.com/watershed-project/watershed/wire"
)

// These are the types of a [Change].
const (
	Added   = delta.Added
	Updated = delta.Updated
	Deleted = delta.Deleted
)

// Change is what happened to an object. Nothing is decoded before it is asked for.
//
// A state that cannot be decoded is an error of New, and the loop can skip it: if New was
// called before the loop went on, the next change of the object is one from the last
// state that could be decoded, Added if there was none.
type Change[T any] struct {
	// Type is [Added], [Updated] or [Deleted].
	Type delta.Type
	// Initial marks an Added of the state that was there when the watch began.
	Initial bool
	// Missed marks a Deleted that nobody saw happen.
	Missed bool
	// Key is "namespace/name" or "name".
	Key string

	informer *Informer[T]
	loop     *undecodable.Loop[string]
	turn     uint64
	old, now *wire.Object
}

// Old is the state before the change, the zero value if there was none.
func (c Change[T]) Old() (T, error) {
	if c.old == nil {
		return *new(T), nil
	}
	return c.informer.value(c.old)
}

// New is the state after the change or, if the object was deleted, its last one. If the
// final state of a deleted object cannot be decoded, it is the state before that, if the
// loop could decode it.
func (c Change[T]) New() (T, error) {
	value, err := c.informer.value(c.now)
	if err != nil {
		failed := undecodable.Change{Type: c.Type, Old: c.old, New: c.now}
		if last := c.loop.Failed(c.Key, c.turn, failed, c.informer.decodes); last != nil {
			return c.informer.value(last)
		}
	}
	return value, err
}

// value returns the shared value of an object.
func (i *Informer[T]) value(o *wire.Object) (T, error) {
	value, err := i.codec.decode(o)
	i.report(o, err)
	return value, err
}

// Raw are the states as bytes; old may be nil.
func (c Change[T]) Raw() (old, now *wire.Object) { return c.old, c.now }

// Watch yields the state there is, once the informer has synced, and then what
// changes, until ctx or the informer's run ends: if ctx has not ended after the loop, the
// run has, and [Informer.Run] returns the reason. A loop that begins before the informer
// has synced starts with the state of the first list. The loop over it is a reader like
// a [Handler]: it delays nobody, and if it is too slow it is given differences.
func (i *Informer[T]) Watch(ctx context.Context) iter.Seq[Change[T]] {
	return func(yield func(Change[T]) bool) {
		l := i.engine.current.Load()
		f := l.follow()
		if l.wait(ctx) != nil {
			l.unfollow(f)
			return
		}
		loop := new(undecodable.Loop[string])
		give := func(c *change, initial bool) bool {
			given, turn := loop.Next(c.Key, undecodable.Change{Type: c.Type, Missed: c.Missed, Old: c.Old, New: c.New}, i.decodes)
			return ctx.Err() == nil && yield(Change[T]{
				Type: given.Type, Initial: initial, Missed: given.Missed, Key: c.Key,
				informer: i, loop: loop, turn: turn, old: given.Old, now: given.New,
			})
		}
		for key, o := range f.Base().All() {
			if !give(&change{Type: delta.Added, Key: key, New: o}, true) {
				return
			}
		}
		for {
			next, err := f.next(ctx)
			if err != nil {
				return // ctx or the run has ended
			}
			for c := range next.All {
				if !give(c, false) {
					return
				}
			}
		}
	}
}
