// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Catalog has the collections of a fleet, by resource. It does not keep them in memory:
// the mirrors of a resource do, and its readers. The types of a cluster can come and go
// without end, and a collection that nothing uses any more is freed. All methods are safe
// for concurrent use.
type Catalog struct {
	// window limits the log of each collection, in bytes. terms returns the present term of
	// the process.
	window int64
	terms  func() *Term

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

// entry is a collection in the catalog. The field latest is the greatest revision of the collection,
// also after it was freed.
type entry struct {
	collection weak.Pointer[Collection]
	latest     *atomic.Uint64
}

// NewCatalog returns a catalog without collections. The window of each will have some bytes.
// Terms returns the present term of the process, which is never nil.
func NewCatalog(window int64, terms func() *Term) *Catalog {
	return &Catalog{window: window, terms: terms, collections: map[schema.GroupResource]entry{}}
}

// Len returns how many resources have an entry, including those whose collections were just
// freed.
func (c *Catalog) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.collections)
}

// All returns the collections.
func (c *Catalog) All() []*Collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*Collection, 0, len(c.collections))
	for _, e := range c.collections {
		if found := e.collection.Value(); found != nil {
			all = append(all, found)
		}
	}
	return all
}

// Logs returns the logs of the collections.
func (c *Catalog) Logs() []*Log {
	var all []*Log
	for _, found := range c.All() {
		all = append(all, found.log)
	}
	return all
}

// Collection returns the collection of a resource, and creates it if necessary. All
// callers get the same one for as long as one of them holds it.
func (c *Catalog) Collection(r schema.GroupResource) *Collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.collections[r]; ok {
		if found := e.collection.Value(); found != nil {
			return found
		}
		c.removeLocked(r, e)
	}
	found := newCollection(r, c.window, newClock(c.terms, c.floor))
	c.addLocked(found)
	return found
}

// addLocked adds a collection, until it is freed.
func (c *Catalog) addLocked(found *Collection) {
	r, e := found.resource, entry{weak.Make(found), found.clock.latest}
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
func (c *Catalog) removeLocked(r schema.GroupResource, e entry) {
	if c.collections[r] == e {
		delete(c.collections, r)
		c.floor = max(c.floor, e.latest.Load())
	}
}

// Close closes the logs of the collections, also of those that are made later.
func (c *Catalog) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, found := range c.All() {
		found.log.Close()
	}
}
