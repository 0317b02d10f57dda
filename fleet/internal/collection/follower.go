// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"context"
	"iter"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/catchup"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/wire"
)

// Follower reads a collection for one reader, from its state at one moment on. When the
// log has dropped changes because the reader was too slow, or was cut because a cluster
// joined or left, the follower continues with the differences. It is its own
// [catchup.Source].
//
// Its base and the changes since have only the clusters of the reader. The base is
// replaced when the reader has caught up, and at the latest after [Collection.Keep]
// changes, whether they concern the reader or not. Readers of all clusters share their
// snapshots.
type Follower struct {
	catchup.Follower[*Snapshot, Located]
	collection *Collection
	clusters   Clusters
	interest   fanout.Interest
}

// Changes are the next changes for a follower's reader.
type Changes = catchup.Changes[Located]

// NewFollower returns a follower that begins at the current state.
func NewFollower(c *Collection, clusters Clusters, interest fanout.Interest) *Follower {
	f := unstarted(c, clusters, interest)
	f.Start(f.Newest(), f)
	return f
}

// NewFollowerAfter returns a follower of the changes after a revision whose state is not
// known. The error is [fanout.ErrExpired] if the log does not have all of them. Reserved means that
// the collection has issued the revision for certain.
func NewFollowerAfter(
	c *Collection, clusters Clusters, interest fanout.Interest, revision uint64, reserved bool,
) (*Follower, error) {
	if err := c.Recognize(revision); err != nil {
		return nil, err
	}
	f := unstarted(c, clusters, interest)
	now := f.Newest()
	unchanged := now.revision == revision || clusters != nil && now.Changed == revision
	if unchanged || reserved && now.Changed < revision {
		f.Start(now, f)
		return f, nil
	}
	if after := c.log.Stats().After; revision < after || revision > now.revision || !reserved && !c.issued(revision) {
		return nil, c.foreign(revision)
	}
	f.StartAfter(revision, now, f)
	return f, nil
}

func unstarted(c *Collection, clusters Clusters, interest fanout.Interest) *Follower {
	f := &Follower{collection: c, clusters: clusters, interest: interest}
	switch {
	case clusters == nil:
	case len(clusters) == 0:
		f.interest = fanout.In(byCluster, "") // a name that no cluster has
	case len(clusters) == 1 && interest == fanout.Everything():
		f.interest = fanout.In(byCluster, clusters[0])
	}
	return f
}

// Wait waits for changes. It returns none when due is closed while it waits.
func (f *Follower) Wait(ctx context.Context, due <-chan struct{}) (Changes, error) {
	return f.NextUntil(ctx, due, f)
}

// Try is Wait without waiting.
func (f *Follower) Try() (Changes, error) { return f.TryNext(f) }

// Newest implements [catchup.Source].
func (f *Follower) Newest() *Snapshot { return f.collection.Newest(f.clusters) }

// Open implements [catchup.Source].
func (f *Follower) Open(revision uint64) *fanout.Cursor[Located] {
	c, err := objectlog.Cursor(f.collection.log, revision, f.interest)
	if err != nil {
		f.interest = fanout.Everything() // the log does not have the dimension
		c, _ = f.collection.log.Cursor(revision, f.interest)
	}
	c.Lap(uint64(f.collection.Keep))
	return c
}

// Own implements [catchup.Source].
func (f *Follower) Own(batch []Change) []Change {
	if f.clusters == nil && f.interest == fanout.Everything() {
		return batch // part of the log; a cursor that filters reuses its batch
	}
	some := make([]Change, 0, len(batch))
	for _, c := range batch {
		if f.clusters.Has(c.New.Cluster) {
			some = append(some, c)
		}
	}
	return some
}

// renewCost is how many clusters of a snapshot may be copied for each change that the
// follower can then drop. Copying one takes some 20 ns.
const renewCost = 16

// Newer implements [catchup.Source]. It returns a snapshot that is not older than the
// reader's position.
func (f *Follower) Newer(base *Snapshot, position uint64, seen int, o catchup.Occasion) *Snapshot {
	switch {
	case o == catchup.Reading && seen < f.collection.Keep:
		return nil
	case o == catchup.CaughtUp && (seen == 0 || seen*renewCost < len(base.Clusters)):
		return nil
	}
	return f.collection.since(position, f.clusters)
}

// Key implements [catchup.Objects].
func (*Follower) Key(c *Change) catchup.Key {
	return catchup.Key{Cluster: c.New.Cluster, Object: c.Key}
}

// Get implements [catchup.Objects].
func (*Follower) Get(v *Snapshot, key catchup.Key) Located {
	o, ok := v.Get(key.Cluster, key.Object)
	if !ok {
		return Located{}
	}
	return Located{key.Cluster, o}
}

// Same implements [catchup.Objects].
func (*Follower) Same(a, b Located) bool { return wire.Same(a.Object, b.Object) }

// Diff implements [catchup.Objects].
func (f *Follower) Diff(from, to *Snapshot) iter.Seq[*Change] { return diff(from, to) }
