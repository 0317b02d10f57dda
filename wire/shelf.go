// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

const (
	// defaultRoom is how many bytes dictionaries and samples may take by default.
	defaultRoom = 256 << 20
	// kindOverhead is the memory of a kind on the shelf in bytes, without its dictionary
	// and its samples.
	kindOverhead = 1 << 10
)

// room is memory that is taken and returned.
type room struct {
	limit int64
	taken atomic.Int64
}

// take takes memory, and reports whether there was enough. To return memory, which always
// succeeds, bytes is less than 0.
func (r *room) take(bytes int64) bool {
	if r.taken.Add(bytes) > r.limit && bytes > 0 {
		r.taken.Add(-bytes)
		return false
	}
	return true
}

// shelf has the parts for all kinds of the packers that share them. It does not keep them
// in memory: the packers that have seen a kind do. So a kind is forgotten with the last
// source of its objects. All methods are safe for concurrent use.
type shelf struct {
	room room
	// mu guards kinds. It is taken after a packer's. The room limits the number of kinds.
	mu    sync.Mutex
	kinds map[kindKey]weak.Pointer[kindPacker]
}

func newShelf(bytes int64) *shelf {
	return &shelf{room: room{limit: bytes}, kinds: map[kindKey]weak.Pointer[kindPacker]{}}
}

// kindPacker returns the part for a kind, and makes it if necessary. It returns nil if
// there is no room for it.
func (h *shelf) kindPacker(at kindKey) *kindPacker {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.kinds[at].Value(); s != nil {
		return s
	}
	if !h.room.take(kindOverhead) {
		return nil
	}
	s := &kindPacker{key: at, next: trainFirst, room: &h.room, kept: new(atomic.Int64)}
	s.kept.Store(kindOverhead)
	entry := weak.Make(s)
	h.kinds[at] = entry
	runtime.AddCleanup(s, func(kept *atomic.Int64) {
		h.room.take(-kept.Load())
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.kinds[at] == entry {
			delete(h.kinds, at)
		}
	}, s.kept)
	return s
}

// dictionaries returns the number of kinds that have a dictionary.
func (h *shelf) dictionaries() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, entry := range h.kinds {
		if s := entry.Value(); s != nil && s.dict.Load() != nil {
			n++
		}
	}
	return n
}
