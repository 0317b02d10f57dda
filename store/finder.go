// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// finder finds the slot of a key: an open-addressing hash table of slots, which the
// store's writer changes while readers of any snapshot search it, without a lock. It only
// suggests slots. A reader compares the key with the name that its own snapshot has for
// the slot, so it cannot be led to an object that its snapshot does not have.
//
// An entry is 4 bytes, and between three eighths and three quarters of the entries are
// used: 5 to 11 bytes per object, next to 36 of a Go map from key to slot.
type finder struct {
	// entries has free for an entry that was never used; else, in the bits of the mask
	// number, slot+1 or gone, and in the others bits of the key's hash. They differ for
	// most other keys, whose names are then not compared.
	entries []atomic.Uint32
	number  uint32
	// used counts the entries that are not free. Only the writer needs it.
	used int
	// removals counts removed keys. It grows before the key disappears from entries: a
	// reader that misses a key and sees the number of its snapshot knows that its snapshot
	// does not have the key.
	removals atomic.Uint64
}

// free is an entry that was never used. The number of an entry whose key was removed is
// that of the finder's mask.
const free = 0

var seed = maphash.MakeSeed()

// newFinder returns a finder of the keys that have names, which are in slots below a
// number. At most half of its entries are used, and twice as many slots can be, so that
// it lasts for a number of changes in proportion to the work of making it.
func newFinder(names *rows[string], slots uint32, keys int) *finder {
	f := &finder{
		entries: make([]atomic.Uint32, max(8, 1<<bits.Len(uint(2*keys-1)))),
		number:  uint32(uint64(1)<<min(32, bits.Len32(slots)+1) - 1),
	}
	for slot := range slots {
		if name := *names.at(slot); name != "" {
			f.insert(name, slot)
		}
	}
	return f
}

// at returns the place of the entry where the search for a key begins, and the bits of
// the key's hash in its entry.
func (f *finder) at(key string) (i int, tag uint32) {
	h := maphash.String(seed, key)
	return int(h) & (len(f.entries) - 1), uint32(h>>32) &^ f.number
}

// find returns the slot below slots whose name is key.
func (f *finder) find(key string, names *rows[string], slots uint32) (slot uint32, ok bool) {
	if len(f.entries) == 0 {
		return 0, false
	}
	mask := len(f.entries) - 1
	i, tag := f.at(key)
	for {
		e := f.entries[i&mask].Load()
		if e == free {
			return 0, false
		}
		// The number of a removed key is greater than slots.
		if n := e & f.number; e&^f.number == tag && n <= slots && *names.at(n - 1) == key {
			return n - 1, true
		}
		i++
	}
}

// hint returns the number after the slot that the search for a key looks at first, 0 if
// there is none. It may be any slot.
func (f *finder) hint(key string) uint32 {
	if len(f.entries) == 0 {
		return 0
	}
	i, _ := f.at(key)
	return f.entries[i].Load() & f.number
}

// full reports whether the finder must be made anew before a key is inserted.
func (f *finder) full(slot uint32) bool {
	return (f.used+1)*4 > len(f.entries)*3 || slot+1 >= f.number
}

// insert adds a key, which must not be there. The finder must not be full.
func (f *finder) insert(key string, slot uint32) {
	mask := len(f.entries) - 1
	i, tag := f.at(key)
	for f.taken(i & mask) {
		i++
	}
	if f.entries[i&mask].Load() == free {
		f.used++
	}
	f.entries[i&mask].Store(tag | slot + 1)
}

// taken reports whether the entry has a key.
func (f *finder) taken(i int) bool {
	e := f.entries[i].Load()
	return e != free && e&f.number != f.number
}

// remove removes a key, which must be there.
func (f *finder) remove(key string, slot uint32) {
	mask := len(f.entries) - 1
	i, tag := f.at(key)
	for f.entries[i&mask].Load() != tag|slot+1 {
		i++
	}
	f.removals.Add(1)
	f.entries[i&mask].Store(f.number)
	// An entry before a free one is not on the way to any key.
	for ; f.entries[i&mask].Load() == f.number && f.entries[(i+1)&mask].Load() == free; i-- {
		f.entries[i&mask].Store(free)
		f.used--
	}
}
