// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/lru"
)

const (
	// entryBytes is the memory of a cached decision besides its reason, as measured after many
	// changes: 112 bytes for the entry, and the rest for its place in the map.
	entryBytes = 320
	// maxReason is how many bytes of a reason are kept. kube-apiserver's have about 100; a
	// denial names each role that does not exist.
	maxReason = 4 << 10
)

// cache has the most recently used decisions. It is not safe for concurrent use.
type cache struct{ *lru.Map[reviewKey, entry] }

// entry is a cached decision.
type entry struct {
	decision Decision
	// sequence orders reviews by their start.
	sequence uint64
	sent     time.Time
	ttl      time.Duration
}

// newCache returns a cache for at most a number of entries and of bytes.
func newCache(entries, bytes int) cache { return cache{lru.New[reviewKey](entries, bytes, entry.size)} }

func (e entry) expired(now time.Time) bool { return now.Sub(e.sent) >= e.ttl }

func (e entry) size() int { return entryBytes + len(e.decision.Reason) }

// get returns the entry for a key, false if there is none.
func (c cache) get(key reviewKey, now time.Time) (entry, bool) {
	e, ok := c.Get(key)
	if ok && e.expired(now) {
		c.Remove(key)
		return entry{}, false
	}
	return e, ok
}

// put adds an entry, unless the cache has the decision of a review that started later.
func (c cache) put(key reviewKey, e entry, now time.Time) {
	if old, ok := c.Peek(key); ok && old.sequence > e.sequence {
		return
	}
	if e.expired(now) {
		c.Remove(key)
		return
	}
	c.Put(key, e)
	// Two expired entries go for each new one, so that they do not accumulate.
	for range 2 {
		if last, is, ok := c.Oldest(); ok && is.expired(now) {
			c.Remove(last)
		}
	}
}

// expire drops the entries that are too old.
func (c cache) expire(now time.Time) {
	c.RemoveFunc(func(e entry) bool { return e.expired(now) })
}
