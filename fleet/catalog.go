// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fanout"
)

// catalog has the collections of a fleet, by resource. All methods are safe for concurrent
// use.
type catalog struct {
	// window limits the log of each collection, in bytes. slot is the fleet's, see
	// clock.go.
	window int64
	slot   uint64

	// mu guards collections. It is taken after a member's.
	mu          sync.Mutex
	collections map[schema.GroupResource]*collection
}

func newCatalog(window int64) *catalog {
	return &catalog{window: window, slot: newSlot(), collections: map[schema.GroupResource]*collection{}}
}

// all returns the collections.
func (c *catalog) all() []*collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.collections))
}

// logs returns the logs of the collections.
func (c *catalog) logs() []*fanout.Log[located] {
	var all []*fanout.Log[located]
	for _, found := range c.all() {
		all = append(all, found.log)
	}
	return all
}

// collection returns the collection of a resource, and creates it if necessary.
func (c *catalog) collection(r schema.GroupResource) *collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.collections[r]
	if found == nil {
		found = newCollection(r, c.window, c.slot)
		c.collections[r] = found
	}
	return found
}
