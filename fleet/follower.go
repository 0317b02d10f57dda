// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/wire"
)

// follower reads a collection for one reader, from the state at a moment on. When the
// reader is too slow for the log, or a cluster joins or leaves, it goes on with the
// differences between what the reader has seen and what there is.
//
// The reader has seen base and, on top of it, the changes in seen. Both have only
// clusters that it wants, and keep old states of theirs from being freed, so base is
// renewed when the reader has caught up, and at the latest after [collection.apart]
// changes, whether they concern it or not. Readers of all clusters share their vectors.
type follower struct {
	collection *collection
	clusters   clusterSet
	interest   fanout.Interest
	cursor     *fanout.Cursor[located]
	base       *vector
	seen       [][]change
	count      int
	// later is a vector that the reader has not reached yet.
	later *vector
}

func newFollower(c *collection, clusters clusterSet, interest fanout.Interest) *follower {
	f := &follower{collection: c, clusters: clusters, interest: interest}
	switch {
	case clusters == nil:
	case len(clusters) == 0:
		f.interest = fanout.In(byCluster, "") // a name that no cluster has
	case len(clusters) == 1 && interest == fanout.Everything():
		f.interest = fanout.In(byCluster, clusters[0])
	}
	f.restart()
	return f
}

// newFollowerAfter reads what has changed since a revision, of which the state is not
// known: what was in between must be in the log. The error is [ErrExpired].
func newFollowerAfter(c *collection, clusters clusterSet, interest fanout.Interest, revision uint64) (*follower, error) {
	if err := c.recognize(revision); err != nil {
		return nil, err
	}
	f := newFollower(c, clusters, interest)
	if f.base.revision == revision {
		return f, nil
	}
	if after := c.log.Stats().After; revision < after || revision > f.base.revision || !c.issued(revision) {
		return nil, c.foreign(revision)
	}
	f.later, f.base = f.base, nil
	f.open(revision)
	return f, nil
}

// restart makes the state now what the reader has seen.
func (f *follower) restart() {
	f.base, f.seen, f.count, f.later = f.collection.newest(f.clusters), nil, 0, nil
	f.open(f.base.revision)
}

// open reads the log from a revision on.
func (f *follower) open(revision uint64) {
	c, err := openCursor(f.collection.log, revision, f.interest)
	if err != nil {
		f.interest = fanout.Everything() // the log does not have the dimension
		c, _ = f.collection.log.Cursor(revision, f.interest)
	}
	c.Lap(uint64(f.collection.apart))
	f.cursor = c
}

// next waits for changes. It returns nil when due is closed while it waits.
func (f *follower) next(ctx context.Context, due <-chan struct{}) (iter.Seq[*change], error) {
	if changes, err := f.tryNext(); changes != nil || err != nil {
		return changes, err
	}
	for {
		batch, err := f.cursor.NextUntil(ctx, due)
		if err != nil || len(batch) > 0 {
			return f.take(batch, err)
		}
		f.renew()
		select {
		case <-due:
			return nil, nil
		default: // it was a lap
		}
	}
}

// tryNext is next without waiting: nil if there is nothing.
func (f *follower) tryNext() (iter.Seq[*change], error) {
	batch, err := f.cursor.TryNext()
	if err == nil && len(batch) == 0 {
		f.rest()
		return nil, nil
	}
	return f.take(batch, err)
}

func (f *follower) take(batch []change, err error) (iter.Seq[*change], error) {
	if errors.Is(err, fanout.ErrExpired) {
		// There may have been nothing for the reader on the way to later.
		if f.reached(); f.base != nil {
			base, seen := f.base, f.seen
			f.restart()
			return missed(base, seen, f.base, f.clusters), nil
		}
	}
	if err != nil {
		return nil, err
	}
	batch = f.own(batch)
	f.settle(batch)
	return func(yield func(*change) bool) {
		for i := range batch {
			if !yield(&batch[i]) {
				return
			}
		}
	}, nil
}

// own returns the changes of a batch that concern the reader, which may keep them.
func (f *follower) own(batch []change) []change {
	if f.clusters == nil && f.interest == fanout.Everything() {
		return batch // as it is in the log; any other was lent
	}
	some := make([]change, 0, len(batch))
	for _, c := range batch {
		if f.clusters.has(c.New.cluster) {
			some = append(some, c)
		}
	}
	return some
}

// settle counts a batch as seen: changes of it that the reader does not take are not
// repeated.
func (f *follower) settle(batch []change) {
	if len(batch) > 0 {
		f.seen = append(f.seen, batch)
		f.count += len(batch)
	}
	if f.count >= f.collection.apart {
		f.renew()
	}
	f.reached()
}

// renew looks for another base, which is no older than the reader's position.
func (f *follower) renew() {
	if f.later == nil {
		f.later = f.collection.now(f.cursor.Position(), f.clusters)
	}
	f.reached()
}

// renewCost is how many clusters of a vector may be copied for each change that the
// reader then need not keep. Copying one takes some 20 ns.
const renewCost = 16

// rest renews the base of a reader that has caught up, if that is worth its cost.
func (f *follower) rest() {
	if f.later == nil && f.count > 0 && f.count*renewCost >= len(f.base.clusters) {
		f.renew()
	}
	f.reached()
}

// reached makes later the base, if the reader is that far.
func (f *follower) reached() {
	if f.later == nil || f.later.revision > f.cursor.Position() {
		return
	}
	f.base, f.later, f.count = f.later, nil, 0
	f.seen = slices.DeleteFunc(f.seen, func(batch []change) bool { return batch[len(batch)-1].Revision <= f.base.revision })
	for _, batch := range f.seen {
		f.count += len(batch)
	}
}

// missed yields the changes from the state that a reader has seen, base and the changes
// since, to now.
func missed(base *vector, seen [][]change, now *vector, clusters clusterSet) iter.Seq[*change] {
	return func(yield func(*change) bool) {
		last := map[Key]*wire.Object{} // nil: saw it go
		for _, batch := range seen {
			for i := range batch {
				c := &batch[i]
				if c.Revision <= base.revision || !clusters.has(c.New.cluster) {
					continue
				}
				if last[keyOf(c)] = c.New.object; c.Type == delta.Deleted {
					last[keyOf(c)] = nil
				}
			}
		}
		for c := range diff(base, now, clusters.has) {
			if saw, ok := last[keyOf(c)]; ok {
				delete(last, keyOf(c))
				if !correct(c, saw) {
					continue
				}
			}
			if !yield(c) {
				return
			}
		}
		// What is in now as it was in base, and changed in between, or is in neither.
		for _, key := range slices.SortedFunc(maps.Keys(last), Key.Compare) {
			saw := last[key]
			is, _ := now.get(key)
			c := change{Type: delta.Updated, Key: key.Object, Revision: now.revision, Old: located{key.Cluster, saw}, New: located{key.Cluster, is}}
			switch {
			case saw == is, saw != nil && is != nil && wire.Same(saw, is):
				continue
			case is == nil:
				c.Type, c.Missed, c.New = delta.Deleted, true, c.Old
			case saw == nil:
				c.Type, c.Old = delta.Added, located{}
			}
			if !yield(&c) {
				return
			}
		}
	}
}

// correct makes of a change since base one since what the reader saw, and reports
// whether there is anything left to tell.
func correct(c *change, saw *wire.Object) bool {
	gone := c.Type == delta.Deleted
	switch {
	case saw == nil && gone, !gone && saw == c.New.object:
		return false
	case saw == nil:
		c.Type, c.Old = delta.Added, located{}
	case gone:
		c.Old.object, c.New.object = saw, saw
	default:
		c.Type, c.Old = delta.Updated, located{c.New.cluster, saw}
	}
	return true
}

// get is an object of a vector.
func (v *vector) get(key Key) (*wire.Object, bool) {
	i, ok := slices.BinarySearchFunc(v.clusters, key.Cluster, func(c clusterState, name string) int { return strings.Compare(c.cluster, name) })
	if !ok {
		return nil, false
	}
	return v.clusters[i].state.Get(key.Object)
}

func keyOf(c *change) Key { return Key{c.New.cluster, c.Key} }
