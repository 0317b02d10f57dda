// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"iter"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/catchup"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/wire"
)

// follower reads a collection for one reader, from its state at one moment on. When the
// log has dropped changes because the reader was too slow, or was cut because a cluster
// joined or left, the follower continues with the differences. It is its own
// [catchup.Source].
//
// Its base and the changes since have only the clusters of the reader. The base is
// replaced when the reader has caught up, and at the latest after [collection.keep]
// changes, whether they concern the reader or not. Readers of all clusters share their
// vectors.
type follower struct {
	catchup.Follower[*vector, located]
	collection *collection
	clusters   clusterSet
	interest   fanout.Interest
}

// changes are the next changes for a follower's reader.
type changes = catchup.Changes[located]

// newFollower returns a follower that begins at the current state.
func newFollower(c *collection, clusters clusterSet, interest fanout.Interest) *follower {
	f := unstarted(c, clusters, interest)
	f.Start(f.Newest(), f)
	return f
}

// newFollowerAfter returns a follower of the changes after a revision whose state is not
// known. The error is [ErrExpired] if the log does not have all of them. Reserved means that
// the collection has issued the revision for certain.
func newFollowerAfter(c *collection, clusters clusterSet, interest fanout.Interest, revision uint64, reserved bool) (*follower, error) {
	if err := c.recognize(revision); err != nil {
		return nil, err
	}
	f := unstarted(c, clusters, interest)
	now := f.Newest()
	unchanged := now.revision == revision || clusters != nil && now.changed == revision
	if unchanged || reserved && now.changed < revision {
		f.Start(now, f)
		return f, nil
	}
	if after := c.log.Stats().After; revision < after || revision > now.revision || !reserved && !c.issued(revision) {
		return nil, c.foreign(revision)
	}
	f.StartAfter(revision, now, f)
	return f, nil
}

func unstarted(c *collection, clusters clusterSet, interest fanout.Interest) *follower {
	f := &follower{collection: c, clusters: clusters, interest: interest}
	switch {
	case clusters == nil:
	case len(clusters) == 0:
		f.interest = fanout.In(byCluster, "") // a name that no cluster has
	case len(clusters) == 1 && interest == fanout.Everything():
		f.interest = fanout.In(byCluster, clusters[0])
	}
	return f
}

// next waits for changes. It returns none when due is closed while it waits.
func (f *follower) next(ctx context.Context, due <-chan struct{}) (changes, error) {
	return f.NextUntil(ctx, due, f)
}

// tryNext is next without waiting.
func (f *follower) tryNext() (changes, error) { return f.TryNext(f) }

// Newest implements [catchup.Source].
func (f *follower) Newest() *vector { return f.collection.newest(f.clusters) }

// Open implements [catchup.Source].
func (f *follower) Open(revision uint64) *fanout.Cursor[located] {
	c, err := objectlog.Cursor(f.collection.log, revision, f.interest)
	if err != nil {
		f.interest = fanout.Everything() // the log does not have the dimension
		c, _ = f.collection.log.Cursor(revision, f.interest)
	}
	c.Lap(uint64(f.collection.keep))
	return c
}

// Own implements [catchup.Source].
func (f *follower) Own(batch []change) []change {
	if f.clusters == nil && f.interest == fanout.Everything() {
		return batch // part of the log; a cursor that filters reuses its batch
	}
	some := make([]change, 0, len(batch))
	for _, c := range batch {
		if f.clusters.has(c.New.cluster) {
			some = append(some, c)
		}
	}
	return some
}

// renewCost is how many clusters of a vector may be copied for each change that the
// follower can then drop. Copying one takes some 20 ns.
const renewCost = 16

// Newer implements [catchup.Source]. It returns a vector that is not older than the
// reader's position.
func (f *follower) Newer(base *vector, position uint64, seen int, o catchup.Occasion) *vector {
	switch {
	case o == catchup.Reading && seen < f.collection.keep:
		return nil
	case o == catchup.CaughtUp && (seen == 0 || seen*renewCost < len(base.clusters)):
		return nil
	}
	return f.collection.now(position, f.clusters)
}

// Key implements [catchup.Objects].
func (*follower) Key(c *change) catchup.Key { return catchup.Key(keyOf(c)) }

// Get implements [catchup.Objects].
func (*follower) Get(v *vector, key catchup.Key) located {
	o, ok := v.get(Key(key))
	if !ok {
		return located{}
	}
	return located{key.Cluster, o}
}

// Same implements [catchup.Objects].
func (*follower) Same(a, b located) bool { return wire.Same(a.object, b.object) }

// Diff implements [catchup.Objects].
func (f *follower) Diff(from, to *vector) iter.Seq[*change] { return diff(from, to) }
