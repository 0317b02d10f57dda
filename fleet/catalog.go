// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fanout"
)

// catalog has the collections of a fleet, by resource. It does not keep them in memory:
// the mirrors of a resource do, and its readers. The types of a cluster can come and go
// without end, and a collection that nothing uses any more is freed. All methods are safe
// for concurrent use.
type catalog struct {
	// window limits the log of each collection, in bytes. slot is the fleet's, see
	// clock.go.
	window int64
	slot   uint64

	// mu guards the fields below. It is taken after a member's.
	mu sync.Mutex
	// collections costs about 200 bytes for each collection, until the collection is
	// freed.
	collections map[schema.GroupResource]entry
	// floor is the greatest revision of the collections that were freed. Later
	// collections have greater ones, so that none is issued twice.
	floor uint64
	// closed means that the fleet's run has ended.
	closed bool
}

// entry is a collection in the catalog. Latest is the greatest revision of the collection,
// also after it was freed.
type entry struct {
	collection weak.Pointer[collection]
	latest     *atomic.Uint64
}

func newCatalog(window int64) *catalog {
	return &catalog{window: window, slot: newSlot(), collections: map[schema.GroupResource]entry{}}
}

// all returns the collections.
func (c *catalog) all() []*collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*collection, 0, len(c.collections))
	for _, e := range c.collections {
		if found := e.collection.Value(); found != nil {
			all = append(all, found)
		}
	}
	return all
}

// logs returns the logs of the collections.
func (c *catalog) logs() []*fanout.Log[located] {
	var all []*fanout.Log[located]
	for _, found := range c.all() {
		all = append(all, found.log)
	}
	return all
}

// collection returns the collection of a resource, and creates it if necessary. All
// callers get the same one for as long as one of them holds it.
func (c *catalog) collection(r schema.GroupResource) *collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.collections[r]; ok {
		if found := e.collection.Value(); found != nil {
			return found
		}
		c.removeLocked(r, e)
	}
	found := newCollection(r, c.window, newClock(c.slot, c.floor))
	c.addLocked(found)
	return found
}

// addLocked adds a collection, until it is freed.
func (c *catalog) addLocked(found *collection) {
	r, e := found.resource, entry{weak.Make(found), found.latest}
	c.collections[r] = e
	runtime.AddCleanup(found, func(e entry) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.removeLocked(r, e)
	}, e)
	if c.closed {
		found.log.Close()
	}
}

// removeLocked removes the entry of a collection that was freed, unless that has happened
// already.
func (c *catalog) removeLocked(r schema.GroupResource, e entry) {
	if c.collections[r] == e {
		delete(c.collections, r)
		c.floor = max(c.floor, e.latest.Load())
	}
}

// close closes the logs of the collections, also of those that are made later.
func (c *catalog) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, found := range c.all() {
		found.log.Close()
	}
}
