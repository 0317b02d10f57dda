// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/wire"
)

// Change is what happened to an object. Nothing is decoded before it is asked for.
type Change[T any] struct {
	// Type is Added, Updated or Deleted.
	Type delta.Type
	// Initial marks an Added of the state that was there when the watch began.
	Initial bool
	// Missed marks a Deleted that nobody saw happen.
	Missed bool
	// Key is "namespace/name" or "name".
	Key string

	informer *Informer[T]
	old, now *wire.Object
}

// Old is the state before the change, the zero value if there was none.
func (c Change[T]) Old() (T, error) {
	if c.old == nil {
		return *new(T), nil
	}
	return c.informer.codec.decode(c.old)
}

// New is the state after the change or, if the object was deleted, its last one.
func (c Change[T]) New() (T, error) { return c.informer.codec.decode(c.now) }

// Raw are the states as bytes; old may be nil.
func (c Change[T]) Raw() (old, now *wire.Object) { return c.old, c.now }

// Watch yields the state there is, once the informer has synced, and then what
// changes, until ctx or the informer's run ends. The loop over it is a reader like
// a [Handler]: it delays nobody, and if it is too slow it is given differences.
func (i *Informer[T]) Watch(ctx context.Context) iter.Seq[Change[T]] {
	return func(yield func(Change[T]) bool) {
		l := i.engine.current.Load()
		if l.wait(ctx) != nil {
			return
		}
		f := newFollower(l)
		for key, o := range f.base.All() {
			if ctx.Err() != nil || !yield(Change[T]{Type: delta.Added, Initial: true, Key: key, informer: i, now: o}) {
				return
			}
		}
		for {
			changes, err := f.next(ctx)
			if err != nil {
				return // ctx or the run has ended
			}
			for c := range changes {
				if ctx.Err() != nil || !yield(Change[T]{Type: c.Type, Missed: c.Missed, Key: c.Key, informer: i, old: c.Old, now: c.New}) {
					return
				}
			}
		}
	}
}
