// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// collection is one resource of all clusters: the state of each cluster that has it, and
// one log of their changes. The log keeps each cluster's changes in their order. When a
// cluster's state joins or leaves as a whole, that is not logged: the log is cut, and
// readers continue with the differences.
//
// It costs 100 bytes for each cluster, and the window of the log.
type collection struct {
	resource schema.GroupResource
	// keep is how many changes a follower keeps before it renews its base.
	keep int
	log  *fanout.Log[located]
	// parts are sorted by cluster. The list is replaced, not modified.
	parts atomic.Pointer[[]*clusterPart]

	// mu is held by writers, and guards the fields below.
	mu sync.Mutex
	// clock has the revision of the newest state, and changed the last one of each cluster.
	clock
	changed lastChanges
	// last is the vector of all clusters that was made last, as long as a reader holds
	// it.
	last weak.Pointer[vector]
	// indexes are added to every informer. informers has all informers with the names of
	// their clusters, including those that have no part yet.
	indexes   map[indexer]struct{}
	informers map[*informer]string
}

// clusterPart is one cluster's part of a collection. The collection's mu guards
// informer.
type clusterPart struct {
	cluster  string
	informer *informer
	state    atomic.Pointer[state]
}

// indexer is an index of any type.
type indexer interface {
	// join and leave are called with the collection's mu held.
	join(cluster string, i *informer)
	leave(*informer)
}

func newCollection(r schema.GroupResource, window int64, revisions clock) *collection {
	c := &collection{resource: r, keep: 1024, clock: revisions, indexes: map[indexer]struct{}{}, informers: map[*informer]string{}}
	c.changed.floor = c.advance(microseconds())
	c.parts.Store(&[]*clusterPart{})
	opts := objectlog.OptionsOf(window, func(l located) *wire.Object { return l.object })
	opts.Dimensions = append(opts.Dimensions, fanout.Dimension[located]{Name: byCluster, Values: func(l located) []fanout.Value {
		return []fanout.Value{fanout.ValueOf(l.cluster)}
	}})
	c.log = fanout.New(opts)
	c.log.Cut(c.revision)
	return c
}

// byCluster is the dimension of readers of one cluster.
const byCluster = "cluster"

// find returns the part of a cluster, or nil if it has none, and its position in parts.
func find(parts []*clusterPart, cluster string) (*clusterPart, int) {
	i, ok := slices.BinarySearchFunc(parts, cluster, func(p *clusterPart, name string) int { return cmp.Compare(p.cluster, name) })
	if !ok {
		return nil, i
	}
	return parts[i], i
}

// introduce adds the informer of a cluster, before it runs.
func (c *collection) introduce(cluster string, i *informer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.informers[i] = cluster
	for x := range c.indexes {
		x.join(cluster, i)
	}
}

// applied handles a batch of an informer's changes. The first batch of an informer has no
// changes: it makes the informer's state the cluster's, and applied returns the informer
// that had that place before, if any.
func (c *collection) applied(i *informer, s state, changes []store.Change[*wire.Object]) (replaced *informer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cluster, known := c.informers[i]
	if !known {
		return nil // it was stopped
	}
	parts := *c.parts.Load()
	p, at := find(parts, cluster)
	if p != nil && p.informer == i {
		p.state.Store(&s)
		c.publishLocked(cluster, changes)
		return nil
	}
	if p != nil {
		replaced, p.informer = p.informer, i
		p.state.Store(&s)
	} else {
		p = &clusterPart{cluster: cluster, informer: i}
		p.state.Store(&s)
		parts = slices.Insert(slices.Clone(parts), at, p)
		c.parts.Store(&parts)
	}
	c.cutLocked(cluster)
	return replaced
}

func (c *collection) publishLocked(cluster string, changes []store.Change[*wire.Object]) {
	if len(changes) == 0 {
		return
	}
	all, now := make([]change, len(changes)), microseconds()
	for i := range changes {
		from := &changes[i]
		all[i] = change{
			Type: from.Type, Missed: from.Missed, Key: from.Key, Revision: c.advance(now), Version: from.Version,
			Old: located{cluster, from.Old}, New: located{cluster, from.New},
		}
	}
	c.changed.set(cluster, c.revision, *c.parts.Load())
	c.log.Publish(all)
}

// cutLocked makes readers continue with differences, because the part of a cluster has
// joined, was replaced or has left.
func (c *collection) cutLocked(cluster string) {
	c.last = weak.Pointer[vector]{}
	c.log.Cut(c.advance(microseconds()))
	c.changed.set(cluster, c.revision, *c.parts.Load())
}

// forget removes a cluster's informer that is about to end. If it is to be replaced its
// state stays readable. Otherwise, also in a second call, the state is removed.
func (c *collection) forget(cluster string, i *informer, replaced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.informers, i)
	for x := range c.indexes {
		x.leave(i)
	}
	parts := *c.parts.Load()
	if p, at := find(parts, cluster); !replaced && p != nil && p.informer == i {
		parts = slices.Delete(slices.Clone(parts), at, at+1)
		c.parts.Store(&parts)
		c.cutLocked(cluster)
	}
}

// refreshLocked reads an informer's state again after an index was added to it. If the
// informer is ahead of the collection, a batch with the newer state is on its way.
func (c *collection) refreshLocked(i *informer) {
	p, _ := find(*c.parts.Load(), c.informers[i])
	if p == nil || p.informer != i {
		return
	}
	if s := i.Snapshot(); s.Revision() == p.state.Load().Revision() {
		p.state.Store(&s)
		c.last = weak.Pointer[vector]{}
	}
}

// now returns the state of some clusters at revision since or later. Readers of all
// clusters share vectors.
func (c *collection) now(since uint64, clusters clusterSet) *vector {
	c.mu.Lock()
	defer c.mu.Unlock()
	if clusters != nil {
		return c.vectorLocked(clusters)
	}
	if last := c.last.Value(); last != nil && last.revision >= since {
		return last
	}
	v := c.vectorLocked(nil)
	c.last = weak.Make(v)
	return v
}

// newest returns the current state of some clusters.
func (c *collection) newest(clusters clusterSet) *vector {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.last.Value(); clusters == nil && last != nil && last.revision == c.revision {
		return last
	}
	v := c.vectorLocked(clusters)
	if clusters == nil {
		c.last = weak.Make(v)
	}
	return v
}

// vectorLocked returns a new vector. It has only clusters that its reader wants, because
// it keeps the objects of all its clusters in memory.
func (c *collection) vectorLocked(clusters clusterSet) *vector {
	parts := *c.parts.Load()
	if clusters != nil {
		some := make([]*clusterPart, 0, len(clusters))
		for _, name := range clusters {
			if p, _ := find(parts, name); p != nil {
				some = append(some, p)
			}
		}
		parts = some
	}
	v := &vector{revision: c.revision, changed: c.changedLocked(clusters), clusters: make([]clusterState, len(parts))}
	for i, p := range parts {
		v.clusters[i] = clusterState{p.cluster, p.informer, *p.state.Load()}
	}
	return v
}

// changedLocked returns the revision of the last change in some clusters.
func (c *collection) changedLocked(clusters clusterSet) uint64 {
	if clusters == nil {
		return c.revision
	}
	return c.changed.of(clusters)
}

// recognize returns nil if the collection has issued a revision. Otherwise the error is
// [ErrExpired], and later revisions are greater: see [clock.recognizes].
func (c *collection) recognize(revision uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recognizes(revision) {
		return nil
	}
	return c.foreign(revision)
}

// foreign returns the error for a revision that the collection cannot continue from.
func (c *collection) foreign(revision uint64) error {
	return fmt.Errorf("%s after revision %d: %w", c.resource, revision, fanout.ErrExpired)
}

// issued reports whether the collection has issued a revision that is not before the
// log's window. There are few slots: two processes can have the same one, but hardly the
// same revisions.
func (c *collection) issued(revision uint64) bool {
	c.mu.Lock()
	_, raised := slices.BinarySearch(c.raised, revision)
	newest := c.revision
	c.mu.Unlock()
	if raised || revision == newest || revision == c.log.Stats().After {
		return true
	}
	cursor, err := c.log.Cursor(revision-1, fanout.Everything())
	if err != nil {
		return false
	}
	// If the change has just left the log, reading from it fails as well.
	batch, err := cursor.TryNext()
	return err != nil || len(batch) > 0 && batch[0].Revision == revision
}

// maxLeft limits how many clusters without a part a collection remembers, at some 60 bytes
// each.
const maxLeft = 1024

// lastChanges has the revision of the last change of each cluster of a collection, whose mu
// guards it. A change is one of an object, or that the cluster's part joined, was replaced
// or left.
type lastChanges struct {
	// floor is not less than the revision of any cluster that is not in revisions.
	floor     uint64
	revisions map[string]uint64
}

// set records a change of a cluster.
func (l *lastChanges) set(cluster string, revision uint64, parts []*clusterPart) {
	if l.revisions == nil {
		l.revisions = map[string]uint64{}
	}
	l.revisions[cluster] = revision
	if len(l.revisions) <= len(parts)+maxLeft {
		return
	}
	for name, left := range l.revisions {
		if p, _ := find(parts, name); p == nil {
			l.floor = max(l.floor, left)
			delete(l.revisions, name)
		}
	}
}

// of returns the revision of the last change in some clusters.
func (l *lastChanges) of(clusters clusterSet) uint64 {
	last := l.floor
	for _, name := range clusters {
		last = max(last, l.revisions[name])
	}
	return last
}
