// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/internal/undecodable"
	"github.com/watershed-project/watershed/wire"
)

// Change is a change of an object. States are decoded when [Change.Old] and [Change.New]
// are called.
//
// If a state cannot be decoded, New returns an error, and the reader can skip the change.
// If New was called before the reader continued, the object's next change begins at the
// last state that could be decoded, and is Added if there was none.
type Change[T any] struct {
	// Type is Added, Updated or Deleted.
	Type delta.Type
	// Initial marks an Added of the state at the beginning of the watch.
	Initial bool
	// Missed marks a Deleted that was not observed when it happened. For example, the
	// object's cluster has left, and the object may still exist.
	Missed bool
	// Key identifies the object.
	Key Key
	// Revision is that of the collection after the change, see [Snapshot.Revision]. It
	// never decreases.
	Revision uint64

	view *View[T]
	turn undecodable.Turn[Key]
}

// Old returns the state before the change, or the zero value if there was none.
func (c Change[T]) Old() (T, error) {
	if c.turn.Old == nil {
		return *new(T), nil
	}
	return c.view.try(c.Key.Cluster, c.turn.Old)
}

// New returns the state after the change or, if the object was deleted, its last state.
// If the final state of a deleted object cannot be decoded, New returns the state before
// it, if the reader could decode that.
func (c Change[T]) New() (T, error) {
	value, err := c.view.try(c.Key.Cluster, c.turn.New)
	if last := c.turn.Fallback(err, c.Key, c.view.decodes); last != nil {
		return c.view.decode(last)
	}
	return value, err
}

// Raw returns the states as bytes; old may be nil.
func (c Change[T]) Raw() (old, now *wire.Object) { return c.turn.Old, c.turn.New }

// Watch yields the current state and then the changes, until ctx or the fleet's run ends:
// if ctx has not ended after the loop, the run has. The objects of a cluster that joins
// are Added once they have synced, and those of a cluster that leaves are Deleted. Each
// cluster's changes are in its own order. A slow loop does not delay anything else: it
// receives the differences.
//
// It costs one pointer for each cluster, which readers share.
func (v *View[T]) Watch(ctx context.Context) iter.Seq[Change[T]] {
	return func(yield func(Change[T]) bool) {
		f := collection.NewFollower(v.collection, v.clusters, v.interest)
		loop := new(undecodable.Loop[Key])
		for key, o := range (Snapshot[*wire.Object]{view: v.raw(), state: f.Base()}).All() {
			c := v.change(loop, &collection.Change{
				Type: delta.Added, Key: key.Object, Revision: f.Base().Revision(),
				New: collection.Located{Cluster: key.Cluster, Object: o},
			})
			c.Initial = true
			if ctx.Err() != nil || !yield(c) {
				return
			}
		}
		for v.follow(ctx, f, loop, yield) {
			continue
		}
	}
}

// follow waits for changes, yields them, and reports whether to continue. It is a
// function of its own so that the stack of a waiting reader does not keep the last
// changes in memory, which may be those of a cluster that has left.
//
//go:noinline
func (v *View[T]) follow(
	ctx context.Context, f *collection.Follower, loop *undecodable.Loop[Key], yield func(Change[T]) bool,
) bool {
	next, err := f.Wait(ctx, nil)
	if err != nil {
		return false // ctx or the fleet's run has ended
	}
	for c := range next.All {
		if ctx.Err() != nil || !yield(v.change(loop, c)) {
			return false
		}
	}
	return true
}

// Follower reads the changes of a view like Watch, for a reader that has other work to do
// while there are none. It is used by one goroutine at a time.
type Follower[T any] struct {
	view  *View[T]
	inner *collection.Follower
	loop  undecodable.Loop[Key]
}

// Follow returns the current state, and a follower of the changes after it.
func (v *View[T]) Follow() (Snapshot[T], *Follower[T]) {
	f := collection.NewFollower(v.collection, v.clusters, v.interest)
	return Snapshot[T]{view: v, state: f.Base()}, &Follower[T]{view: v, inner: f}
}

// FollowAfter returns a follower of the changes after a revision of the collection, see
// [Snapshot.Revision] and [Snapshot.Changed]. Reserved means that [View.Reserve] has returned
// the revision to the caller. The error is [fanout.ErrExpired]. Next returns it too if the
// changes expire before the reader has reached the revision that the collection had when
// FollowAfter was called.
func (v *View[T]) FollowAfter(revision uint64, reserved bool) (*Follower[T], error) {
	f, err := collection.NewFollowerAfter(v.collection, v.clusters, v.interest, revision, reserved)
	if err != nil {
		return nil, err
	}
	return &Follower[T]{view: v, inner: f}, nil
}

// Next waits for changes, which must be read before the next call. The error is that of
// ctx, or reports that the fleet's run has ended.
func (f *Follower[T]) Next(ctx context.Context) (iter.Seq[Change[T]], error) {
	return f.NextUntil(ctx, nil)
}

// NextUntil is [Follower.Next], but returns nil when due is closed while it waits. Many
// readers can share one channel, which costs less than a context for each of them.
func (f *Follower[T]) NextUntil(ctx context.Context, due <-chan struct{}) (iter.Seq[Change[T]], error) {
	next, err := f.inner.Wait(ctx, due)
	if err != nil || next.None() {
		return nil, err
	}
	return f.changes(next), nil
}

// TryNext is Next without waiting. It returns nil if there are no changes.
func (f *Follower[T]) TryNext() (iter.Seq[Change[T]], error) {
	next, err := f.inner.Try()
	if err != nil || next.None() {
		return nil, err
	}
	return f.changes(next), nil
}

// Position returns the revision up to which the reader has received everything.
func (f *Follower[T]) Position() uint64 { return f.inner.Position() }

func (f *Follower[T]) changes(next collection.Changes) iter.Seq[Change[T]] {
	return func(yield func(Change[T]) bool) {
		for c := range next.All {
			if !yield(f.view.change(&f.loop, c)) {
				return
			}
		}
	}
}

// change returns a change for the reader of a loop.
func (v *View[T]) change(loop *undecodable.Loop[Key], c *collection.Change) Change[T] {
	key := Key{c.New.Cluster, c.Key}
	turn := loop.Next(key, undecodable.Change{Type: c.Type, Old: c.Old.Object, New: c.New.Object}, v.decodes)
	return Change[T]{Type: turn.Type, Missed: c.Missed, Key: key, Revision: c.Revision, view: v, turn: turn}
}

// raw returns the view as bytes.
func (v *View[T]) raw() *View[*wire.Object] {
	return &View[*wire.Object]{fleet: v.fleet, collection: v.collection, clusters: v.clusters,
		decode: func(o *wire.Object) (*wire.Object, error) { return o, nil }}
}
