// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"iter"
	"math"
	"strings"

	"github.com/watershed-project/watershed/delta"
)

// Snapshot is an immutable state of a [Store]. It can be read by any number of
// goroutines and kept for any time.
type Snapshot[T any] struct {
	columns *columns[T]
	keys    *keys
	records rows[record[T]]
	// names has the key of each slot below slots, "" if the slot is free.
	names rows[string]
	slots uint32
	// finder had removed as many keys as removals when the snapshot was taken.
	finder                 *finder
	removals               uint64
	indexes                []frozen[T]
	revision, version, era uint64
}

// frozen is an index at the time of the snapshot. entries has the index's own type.
type frozen[T any] struct {
	index   indexer[T]
	entries any
}

// Revision returns the number of changes that the store had applied.
func (s *Snapshot[T]) Revision() uint64 { return s.revision }

// Version returns the source version that the store has reached: the newest among the
// deltas applied, bookmarks included, since the source last went back. It is 0 if none
// had a version.
func (s *Snapshot[T]) Version() uint64 { return s.version }

// Era returns how often the source has gone back to an older version. Versions of
// different eras cannot be compared.
func (s *Snapshot[T]) Era() uint64 { return s.era }

// Len returns the number of objects.
func (s *Snapshot[T]) Len() int { return s.keys.Len() }

// Size returns about how many bytes the store needs in addition to the objects and their
// keys: to find objects by key, and by its indexes.
func (s *Snapshot[T]) Size() (keys, indexes int) {
	for _, f := range s.indexes {
		indexes += f.index.size(f.entries, s.Len())
	}
	return perObject * s.Len(), indexes
}

// Sizes in bytes, measured by memory_test.go.
const (
	// perObject is the overhead of the store for one object.
	perObject = 105
	// perEntry is the size of one entry of an index.
	perEntry = 120
)

// Get returns the object with the given key.
func (s *Snapshot[T]) Get(key string) (obj T, ok bool) {
	slot, ok := s.finder.find(key, &s.names, s.slots)
	if !ok && s.finder.removals.Load() != s.removals {
		// Since the snapshot was taken a key was removed, perhaps this one.
		slot, ok = s.keys.Get(key)
	}
	if ok {
		obj = s.records.at(slot).object
	}
	return obj, ok
}

// Unordered yields every object, in no particular order. It is All for a consumer that
// does not need key order, and takes about half of the time.
func (s *Snapshot[T]) Unordered() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for from := uint32(0); from < s.slots; from += 1 << (pageBits + nodeBits) {
			names, records := s.names.directoryOf(from), s.records.directoryOf(from)
			// After updates the pages are scattered. Reading a word of each lets the
			// processor wait for all of them together.
			var epochs uint64
			for i, p := range records.content {
				if p != nil {
					epochs += p.epoch + names.content[i].epoch
				}
			}
			if epochs == math.MaxUint64 {
				return // never
			}
			for i, p := range names.content {
				if p == nil {
					break
				}
				for j, name := range p.content {
					if name != "" && !yield(name, records.content[i].content[j].object) {
						return
					}
				}
			}
		}
	}
}

// All yields every object in key order.
func (s *Snapshot[T]) All() iter.Seq2[string, T] { return s.Range("", "") }

// Prefix yields the objects whose keys begin with prefix, in key order. The
// objects of a namespace are Prefix("namespace/").
func (s *Snapshot[T]) Prefix(prefix string) iter.Seq2[string, T] { return s.Range(prefix, "") }

// Range is Prefix, beginning after a given key, which need not exist. To continue an
// interrupted walk, pass the last key it saw.
func (s *Snapshot[T]) Range(prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		f := fetch[T]{records: &s.records, yield: yield}
		s.keys.Ascend(max(prefix, after), func(key string, slot uint32) bool {
			if !strings.HasPrefix(key, prefix) {
				return false
			}
			return after != "" && key <= after || f.add(key, slot)
		})
		f.flush()
	}
}

// fetch yields objects by slot. Objects with neighbouring keys may have been added at
// different times and have their records far apart. Reading a few records at once lets
// the processor wait for all of them together.
type fetch[T any] struct {
	records *rows[record[T]]
	yield   func(string, T) bool
	stopped bool // yield returned false
	n       int
	keys    [fetchSize]string
	slots   [fetchSize]uint32
	pages   [fetchSize]*page[record[T]]
}

// fetchSize is how many records are read at once.
const fetchSize = 16

// add adds an object and reports whether the consumer wants more.
func (f *fetch[T]) add(key string, slot uint32) bool {
	f.keys[f.n], f.slots[f.n] = key, slot
	if f.n++; f.n == len(f.keys) {
		f.flush()
	}
	return !f.stopped
}

// flush yields the objects added since the last flush.
func (f *fetch[T]) flush() {
	for i, slot := range f.slots[:f.n] {
		f.pages[i] = f.records.pageOf(slot)
	}
	var revisions uint64
	for i, slot := range f.slots[:f.n] {
		revisions += f.pages[i].content[slot&inPage].revision
	}
	if revisions == math.MaxUint64 {
		return // never
	}
	for i := 0; i < f.n && !f.stopped; i++ {
		f.stopped = !f.yield(f.keys[i], f.pages[i].content[f.slots[i]&inPage].object)
	}
	f.n = 0
}

// Diff yields the changes from one snapshot of a store to another of the same store, in
// key order: Added, Updated and, as Missed, Deleted. It walks the keys of both snapshots,
// some 50 ns per object, and does not compare objects.
func Diff[T any](from, to *Snapshot[T]) iter.Seq[Change[T]] {
	return func(yield func(Change[T]) bool) {
		if from.revision == to.revision {
			return
		}
		a, b := from.keys.Iter(), to.keys.Iter()
		inA, inB := a.First(), b.First()
		for inA || inB {
			var c Change[T]
			switch {
			case !inB || inA && a.Key() < b.Key():
				last := from.records.at(a.Value()).object
				c = Change[T]{
					Type: delta.Deleted, Missed: true, Key: a.Key(), Old: last, New: last, Revision: to.revision,
				}
				inA = a.Next()
			case !inA || b.Key() < a.Key():
				now := to.records.at(b.Value())
				c = Change[T]{Type: delta.Added, Key: b.Key(), New: now.object, Revision: now.revision}
				inB = b.Next()
			default:
				old, now := from.records.at(a.Value()), to.records.at(b.Value())
				if old.revision != now.revision {
					c = Change[T]{
						Type: delta.Updated, Key: b.Key(), Old: old.object, New: now.object, Revision: now.revision,
					}
				}
				inA, inB = a.Next(), b.Next()
			}
			if c.Type != 0 && !yield(c) {
				return
			}
		}
	}
}
