// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"cmp"
	"fmt"
	"maps"
	"math"
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

// Collection is one resource of all clusters: the state of each cluster that has it, and
// one log of their changes. The log keeps each cluster's changes in their order. When a
// cluster's state joins or leaves as a whole, that is not logged: the log is cut, and
// readers continue with the differences.
//
// It costs 100 bytes for each cluster, and the window of the log.
type Collection struct {
	resource schema.GroupResource
	// Keep is how many changes a follower keeps before it renews its base. It is set before
	// there are followers.
	Keep int
	log  *Log
	// parts are sorted by cluster. The list is replaced, not modified.
	parts atomic.Pointer[[]*clusterPart]

	// mu is held by writers, and guards the fields below.
	mu sync.Mutex
	// clock has the revision of the newest state, and changed the last one of each cluster.
	clock   clock
	changed lastChanges
	// last is the snapshot of all clusters that was made last, as long as a reader holds
	// it.
	last weak.Pointer[Snapshot]
	// indexes are added to every informer. informers has all informers with the names of
	// their clusters, including those that have no part yet.
	indexes   map[Index]struct{}
	informers map[*Informer]string
}

// clusterPart is one cluster's part of a collection. The collection's mu guards
// informer.
type clusterPart struct {
	cluster  string
	informer *Informer
	state    atomic.Pointer[State]
}

// Index is an index of any type. Values can be compared.
type Index interface {
	// Join and Leave are called with the collection's mu held.
	Join(cluster string, i *Informer)
	Leave(*Informer)
}

func newCollection(r schema.GroupResource, window int64, revisions clock) *Collection {
	c := &Collection{
		resource: r, Keep: 1024, clock: revisions,
		indexes: map[Index]struct{}{}, informers: map[*Informer]string{},
	}
	c.changed.floor = c.clock.advance(c.clock.term.now())
	c.parts.Store(&[]*clusterPart{})
	opts := objectlog.OptionsOf(window, func(l Located) *wire.Object { return l.Object })
	opts.Dimensions = append(opts.Dimensions, fanout.Dimension[Located]{
		Name:   byCluster,
		Values: func(l Located) []fanout.Value { return []fanout.Value{fanout.ValueOf(l.Cluster)} },
	})
	c.log = fanout.New(opts)
	c.log.Cut(c.clock.revision)
	return c
}

// byCluster is the dimension of readers of one cluster.
const byCluster = "cluster"

// find returns the part of a cluster, or nil if it has none, and its position in parts.
func find(parts []*clusterPart, cluster string) (*clusterPart, int) {
	i, ok := slices.BinarySearchFunc(parts, cluster, func(p *clusterPart, name string) int {
		return cmp.Compare(p.cluster, name)
	})
	if !ok {
		return nil, i
	}
	return parts[i], i
}

// Resource returns the resource of the collection.
func (c *Collection) Resource() schema.GroupResource { return c.resource }

// Log returns the changes in all clusters.
func (c *Collection) Log() *Log { return c.log }

// State returns the newest state of a cluster, and false if it has none.
func (c *Collection) State(cluster string) (State, bool) {
	p, _ := find(*c.parts.Load(), cluster)
	if p == nil {
		return State{}, false
	}
	return *p.state.Load(), true
}

// Introduce adds the informer of a cluster, before it runs.
func (c *Collection) Introduce(cluster string, i *Informer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.informers[i] = cluster
	for x := range c.indexes {
		x.Join(cluster, i)
	}
}

// Apply handles a batch of an informer's changes. The first batch of an informer has no
// changes: it makes the informer's state the cluster's, and Apply returns the informer
// that had that place before, if any.
func (c *Collection) Apply(i *Informer, s State, changes []store.Change[*wire.Object]) (replaced *Informer) {
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

// followLocked makes the present revisions those of the present term. No state has changed, but
// revisions of an ended term must not be issued any more.
func (c *Collection) followLocked() {
	if c.clock.follow() {
		c.last = weak.Pointer[Snapshot]{}
		c.changed = lastChanges{floor: c.clock.revision}
	}
}

func (c *Collection) publishLocked(cluster string, changes []store.Change[*wire.Object]) {
	if len(changes) == 0 {
		return
	}
	c.followLocked()
	all, now := make([]Change, len(changes)), c.clock.term.now()
	for i := range changes {
		from := &changes[i]
		all[i] = Change{
			Type: from.Type, Missed: from.Missed, Key: from.Key, Revision: c.clock.advance(now), Version: from.Version,
			Old: Located{cluster, from.Old}, New: Located{cluster, from.New},
		}
	}
	c.changed.set(cluster, c.clock.revision, *c.parts.Load())
	c.log.Publish(all)
}

// cutLocked makes readers continue with differences, because the part of a cluster has
// joined, was replaced or has left.
func (c *Collection) cutLocked(cluster string) {
	c.followLocked()
	c.last = weak.Pointer[Snapshot]{}
	c.log.Cut(c.clock.advance(c.clock.term.now()))
	c.changed.set(cluster, c.clock.revision, *c.parts.Load())
}

// Forget removes a cluster's informer that is about to end. If it is to be replaced its
// state stays readable. Otherwise, also in a second call, the state is removed.
func (c *Collection) Forget(cluster string, i *Informer, replaced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.informers, i)
	for x := range c.indexes {
		x.Leave(i)
	}
	parts := *c.parts.Load()
	if p, at := find(parts, cluster); !replaced && p != nil && p.informer == i {
		parts = slices.Delete(slices.Clone(parts), at, at+1)
		c.parts.Store(&parts)
		c.cutLocked(cluster)
	}
}

// AddIndex adds an index to all informers that are introduced later. It returns the informers
// that exist already, with the names of their clusters; the caller indexes them.
func (c *Collection) AddIndex(x Index) map[*Informer]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.indexes[x] = struct{}{}
	return maps.Clone(c.informers)
}

// Indexed calls store, with mu held, after an informer that AddIndex returned was indexed,
// unless the informer has ended meanwhile.
func (c *Collection) Indexed(i *Informer, store func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.informers[i]; there {
		store()
		c.refreshLocked(i)
	}
}

// RemoveIndex removes an index.
func (c *Collection) RemoveIndex(x Index) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.indexes, x)
}

// refreshLocked reads an informer's state again after an index was added to it. If the
// informer is ahead of the collection, a batch with the newer state is on its way.
func (c *Collection) refreshLocked(i *Informer) {
	p, _ := find(*c.parts.Load(), c.informers[i])
	if p == nil || p.informer != i {
		return
	}
	if s := i.Snapshot(); s.Revision() == p.state.Load().Revision() {
		p.state.Store(&s)
		c.last = weak.Pointer[Snapshot]{}
	}
}

// since returns a state of some clusters whose revision is at least the given one, or the current
// state if the revision is in the future. Readers of all clusters share the same snapshot.
func (c *Collection) since(revision uint64, clusters Clusters) *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followLocked()
	if clusters != nil {
		return c.snapshotLocked(clusters)
	}
	if last := c.last.Value(); last != nil && last.revision >= min(revision, c.clock.revision) {
		return last
	}
	v := c.snapshotLocked(nil)
	c.last = weak.Make(v)
	return v
}

// Newest returns the current state of some clusters.
func (c *Collection) Newest(clusters Clusters) *Snapshot { return c.since(math.MaxUint64, clusters) }

// snapshotLocked returns a new snapshot. It has only clusters that its reader wants, because
// it keeps the objects of all its clusters in memory.
func (c *Collection) snapshotLocked(clusters Clusters) *Snapshot {
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
	v := &Snapshot{
		revision: c.clock.revision, Changed: c.changedLocked(clusters), Clusters: make([]ClusterState, len(parts)),
	}
	for i, p := range parts {
		v.Clusters[i] = ClusterState{p.cluster, p.informer, *p.state.Load()}
	}
	return v
}

// Changed returns the revision of the last change in some clusters.
func (c *Collection) Changed(clusters Clusters) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followLocked()
	return c.changedLocked(clusters)
}

// changedLocked returns the revision of the last change in some clusters.
func (c *Collection) changedLocked(clusters Clusters) uint64 {
	if clusters == nil {
		return c.clock.revision
	}
	return c.changed.of(clusters)
}

// Reserve returns a revision that is greater than all before and less than all after it. No
// state has it.
func (c *Collection) Reserve() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followLocked()
	return c.clock.next(c.clock.term.now())
}

// Recognize returns nil if the collection has issued a revision. Otherwise the error is
// [fanout.ErrExpired], and later revisions are greater: see [clock.recognizes].
func (c *Collection) Recognize(revision uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followLocked()
	if c.clock.recognizes(revision) {
		return nil
	}
	return c.foreign(revision)
}

// foreign returns the error for a revision that the collection cannot continue from.
func (c *Collection) foreign(revision uint64) error {
	return fmt.Errorf("%s after revision %d: %w", c.resource, revision, fanout.ErrExpired)
}

// issued reports whether the collection has issued a revision that is not before the
// log's window. There are few slots: two processes can have the same one, but hardly the
// same revisions.
func (c *Collection) issued(revision uint64) bool {
	c.mu.Lock()
	_, raised := slices.BinarySearch(c.clock.raised, revision)
	newest := c.clock.revision
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
