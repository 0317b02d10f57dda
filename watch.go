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

// Added, Updated and Deleted are the types of a [Change].
const (
	Added   = delta.Added
	Updated = delta.Updated
	Deleted = delta.Deleted
)

// Change is a change of an object. States are decoded only when Old or New is called.
//
// If a state cannot be decoded, New returns an error, and the loop can skip the change.
// If New was called before the loop continued, the next change of the object is from
// the last state that could be decoded, or Added if there was none.
type Change[T any] struct {
	// Type is [Added], [Updated] or [Deleted].
	Type delta.Type
	// Initial marks an Added of an object that existed when the watch began.
	Initial bool
	// Missed marks a Deleted that was not observed.
	Missed bool
	// Key is "namespace/name" or "name".
	Key string

	informer *Informer[T]
	turn     undecodable.Turn[string]
}

// Old returns the state before the change, or the zero value if there was none.
func (c Change[T]) Old() (T, error) {
	if c.turn.Old == nil {
		return *new(T), nil
	}
	return c.informer.value(c.turn.Old)
}

// New returns the state after the change or, if the object was deleted, its last state.
// If the final state of a deleted object cannot be decoded, New returns the state
// before it, if the loop could decode that one.
func (c Change[T]) New() (T, error) {
	value, err := c.informer.value(c.turn.New)
	if last := c.turn.Fallback(err, c.Key, c.informer.decoder.decodes); last != nil {
		return c.informer.value(last)
	}
	return value, err
}

// value returns the shared value of an object.
func (i *Informer[T]) value(o *wire.Object) (T, error) {
	value, err := i.decoder.codec.decode(o)
	i.decoder.report(o, err)
	return value, err
}

// Raw returns both states as bytes. The old one may be nil.
func (c Change[T]) Raw() (old, now *wire.Object) { return c.turn.Old, c.turn.New }

// Watch yields the current state, once the informer has synced, and then every change,
// until ctx or the informer's run ends. If ctx has not ended after the loop, the run
// has, and [Informer.Run] returns the reason. A loop that begins before the informer
// has synced starts with the state of the first list. Like a [Handler], the loop does
// not delay other readers, and it receives differences if it is too slow.
func (i *Informer[T]) Watch(ctx context.Context) iter.Seq[Change[T]] {
	return func(yield func(Change[T]) bool) {
		l := i.engine.Current()
		f := l.Follow()
		if l.Wait(ctx) != nil {
			l.Unfollow(f)
			return
		}
		loop := new(undecodable.Loop[string])
		give := func(c *change, initial bool) bool {
			all := undecodable.Change{Type: c.Type, Missed: c.Missed, Old: c.Old, New: c.New}
			turn := loop.Next(c.Key, all, i.decoder.decodes)
			return ctx.Err() == nil && yield(Change[T]{
				Type: turn.Type, Initial: initial, Missed: turn.Missed, Key: c.Key, informer: i, turn: turn,
			})
		}
		for key, o := range f.Base().All() {
			if !give(&change{Type: delta.Added, Key: key, New: o}, true) {
				return
			}
		}
		for {
			next, err := f.Next(ctx)
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
