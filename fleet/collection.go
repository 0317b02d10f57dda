// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

type (
	// state is one cluster's state of a resource.
	state = watershed.Snapshot[*wire.Object]
	// change is a change in one cluster.
	change = store.Change[located]
)

// located is an object and the name of its cluster.
type located struct {
	cluster string
	object  *wire.Object
}

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
	// revision is that of the newest state. See clock.go.
	revision uint64
	// slot is the fleet's, and part of all revisions. raised are the newest revisions
	// without a change, oldest first.
	slot   uint64
	raised []uint64
	// last is the vector of all clusters that was made last, as long as a reader holds
	// it.
	last weak.Pointer[vector]
	// indexes are added to every mirror. mirrors has all mirrors, including those that
	// have no part yet.
	indexes map[indexer]struct{}
	mirrors map[*mirror]struct{}
}

// clusterPart is one cluster's part of a collection. The collection's mu guards mirror.
type clusterPart struct {
	cluster string
	mirror  *mirror
	state   atomic.Pointer[state]
}

// indexer is an index of any type.
type indexer interface {
	// join and leave are called with the collection's mu held.
	join(*mirror)
	leave(*mirror)
}

// vector is the state of all clusters, or of some, at a revision of the collection.
type vector struct {
	revision uint64
	clusters []clusterState // by name
}

type clusterState struct {
	cluster string
	mirror  *mirror
	state   state
}

func newCollection(r schema.GroupResource, window int64, slot uint64) *collection {
	c := &collection{resource: r, keep: 1024, slot: slot, indexes: map[indexer]struct{}{}, mirrors: map[*mirror]struct{}{}}
	c.revision = c.nextLocked(microseconds())
	c.parts.Store(&[]*clusterPart{})
	opts := logOptions(func(l located) *wire.Object { return l.object })
	opts.Bytes, opts.Count, opts.Size = window, max(10_000, int(window>>10)), size
	opts.Dimensions = append(opts.Dimensions, fanout.Dimension[located]{Name: byCluster, Values: func(l located) []fanout.Value {
		return []fanout.Value{fanout.ValueOf(l.cluster)}
	}})
	c.log = fanout.New(opts)
	c.log.Cut(c.revision)
	return c
}

// byCluster is the dimension of readers of one cluster.
const byCluster = "cluster"

// size returns how many bytes a change keeps from being freed: the state that it
// replaced.
func size(c change) int {
	n := 150
	if c.Old.object != nil {
		n += c.Old.object.Size()
	}
	if c.Type == delta.Deleted {
		n += c.New.object.Size()
	}
	return n + n/8
}

// find returns the part of a cluster, or nil if it has none, and its position in parts.
func find(parts []*clusterPart, cluster string) (*clusterPart, int) {
	i, ok := slices.BinarySearchFunc(parts, cluster, func(p *clusterPart, name string) int { return cmp.Compare(p.cluster, name) })
	if !ok {
		return nil, i
	}
	return parts[i], i
}

// introduce adds a mirror, before it runs.
func (c *collection) introduce(m *mirror) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirrors[m] = struct{}{}
	for x := range c.indexes {
		x.join(m)
	}
}

// applied handles a batch of a mirror's changes. The first batch of a mirror has no
// changes: it makes the mirror's state the cluster's, and applied returns the mirror that
// had that place before, if any.
func (c *collection) applied(m *mirror, s state, changes []store.Change[*wire.Object]) (replaced *mirror) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.mirrors[m]; !known {
		return nil // it was stopped
	}
	parts := *c.parts.Load()
	p, at := find(parts, m.cluster)
	if p != nil && p.mirror == m {
		p.state.Store(&s)
		c.publishLocked(m.cluster, changes)
		return nil
	}
	if p != nil {
		replaced, p.mirror = p.mirror, m
		p.state.Store(&s)
	} else {
		p = &clusterPart{cluster: m.cluster, mirror: m}
		p.state.Store(&s)
		parts = slices.Insert(slices.Clone(parts), at, p)
		c.parts.Store(&parts)
	}
	c.cutLocked()
	return replaced
}

func (c *collection) publishLocked(cluster string, changes []store.Change[*wire.Object]) {
	if len(changes) == 0 {
		return
	}
	all, now := make([]change, len(changes)), microseconds()
	for i := range changes {
		from := &changes[i]
		c.revision = c.nextLocked(now)
		all[i] = change{
			Type: from.Type, Missed: from.Missed, Key: from.Key, Revision: c.revision, Version: from.Version,
			Old: located{cluster, from.Old}, New: located{cluster, from.New},
		}
	}
	c.log.Publish(all)
}

// cutLocked makes readers continue with differences.
func (c *collection) cutLocked() {
	c.revision = c.nextLocked(microseconds())
	c.last = weak.Pointer[vector]{}
	c.log.Cut(c.revision)
}

// forget removes a mirror that is about to end. If it is to be replaced its state stays
// readable, otherwise the state is removed.
func (c *collection) forget(m *mirror, replaced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mirrors, m)
	for x := range c.indexes {
		x.leave(m)
	}
	parts := *c.parts.Load()
	if p, at := find(parts, m.cluster); !replaced && p != nil && p.mirror == m {
		parts = slices.Delete(slices.Clone(parts), at, at+1)
		c.parts.Store(&parts)
		c.cutLocked()
	}
}

// refreshLocked reads a mirror's state again after an index was added to it. If the
// mirror is ahead of the collection, a batch with the newer state is on its way.
func (c *collection) refreshLocked(m *mirror) {
	p, _ := find(*c.parts.Load(), m.cluster)
	if p == nil || p.mirror != m {
		return
	}
	if s := m.informer.Snapshot(); s.Revision() == p.state.Load().Revision() {
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
	v := &vector{revision: c.revision, clusters: make([]clusterState, len(parts))}
	for i, p := range parts {
		v.clusters[i] = clusterState{p.cluster, p.mirror, *p.state.Load()}
	}
	return v
}
