// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import "time"

const (
	// entryBytes is the memory of a cached decision besides its reason, as measured after many
	// changes: 112 bytes for the entry, and the rest for its place in the map.
	entryBytes = 320
	// maxReason is how many bytes of a reason are kept. kube-apiserver's have about 100; a
	// denial names each role that does not exist.
	maxReason = 4 << 10
)

// cache keeps the most recently used decisions, at most entries of them and at most bytes
// in size. It is not safe for concurrent use.
type cache struct {
	entries, bytes int // limits

	index map[reviewKey]*entry
	// first is the entry that was used last. The list is a ring through root.
	root entry
	size int // bytes
}

// entry is a cached decision.
type entry struct {
	prev, next *entry
	key        reviewKey
	decision   Decision
	// sequence orders reviews by their start.
	sequence uint64
	sent     time.Time
	ttl      time.Duration
}

func newCache(entries, bytes int) *cache {
	c := &cache{entries: entries, bytes: bytes}
	c.clear()
	return c
}

func (e *entry) expired(now time.Time) bool { return now.Sub(e.sent) >= e.ttl }

func (e *entry) cost() int { return entryBytes + len(e.decision.Reason) }

// get returns the entry for a key, or nil.
func (c *cache) get(key reviewKey, now time.Time) *entry {
	e := c.index[key]
	if e == nil {
		return nil
	}
	if e.expired(now) {
		c.drop(e)
		return nil
	}
	c.unlink(e)
	c.link(e)
	return e
}

// put adds an entry, unless the cache has the decision of a review that started later. It
// drops those that were not used for the longest time, until the limits hold.
func (c *cache) put(e *entry, now time.Time) {
	if old := c.index[e.key]; old != nil {
		if old.sequence > e.sequence {
			return
		}
		c.drop(old)
	}
	if e.cost() > c.bytes || e.expired(now) {
		return
	}
	c.index[e.key] = e
	c.link(e)
	c.size += e.cost()
	for len(c.index) > c.entries || c.size > c.bytes {
		c.drop(c.root.prev)
	}
	// Two expired entries go for each new one, so that they do not accumulate.
	for range 2 {
		if last := c.root.prev; last != &c.root && last.expired(now) {
			c.drop(last)
		}
	}
}

// expire drops the entries that are too old.
func (c *cache) expire(now time.Time) {
	for e := c.root.next; e != &c.root; {
		next := e.next
		if e.expired(now) {
			c.drop(e)
		}
		e = next
	}
	if len(c.index) == 0 {
		c.clear() // a map does not shrink
	}
}

func (c *cache) clear() {
	c.index, c.size = map[reviewKey]*entry{}, 0
	c.root.prev, c.root.next = &c.root, &c.root
}

func (c *cache) drop(e *entry) {
	delete(c.index, e.key)
	c.unlink(e)
	c.size -= e.cost()
}

func (c *cache) link(e *entry) {
	e.prev, e.next = &c.root, c.root.next
	e.prev.next, e.next.prev = e, e
}

func (c *cache) unlink(e *entry) { e.prev.next, e.next.prev = e.next, e.prev }
