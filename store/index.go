// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// indexer is an [Index] of any value type, as the store's writer sees it. The
// methods are called with the store's mu held.
type indexer[T any] interface {
	putLocked(slot uint32, key string, obj T)
	removeLocked(slot uint32, key string)
	// emptyLocked: no object is left.
	emptyLocked()
	// freezeLocked returns the entries as an immutable *btree.BTreeG.
	freezeLocked() any
	// count is the number of such entries. It may be called at any time.
	count(entries any) int
	checkLocked(s *Store[T])
}

// Index finds objects by a value computed from them. It is read with any
// snapshot of its store; a snapshot older than the index, or one taken after
// [Index.Remove], is searched object by object, with the same result.
type Index[T any, K cmp.Ordered] struct {
	name  string
	store *Store[T]
	// values computes the values of an object, in any order.
	values func(T) ([]K, error)

	// What follows is guarded by the store's mu, but for failing.
	entries *btree.BTreeG[entry[K]]
	// frozen is the copy of entries that the current snapshot has, nil if
	// entries has changed since.
	frozen *btree.BTreeG[entry[K]]
	// terms are, by slot, what each object is indexed under, so that it can be
	// found again when the object changes. many has those with several values.
	terms []term[K]
	many  map[uint32][]K

	failing atomic.Pointer[failing]
}

// term is what an object is indexed under.
type term[K cmp.Ordered] struct {
	state state
	// value is the only value, if there is one.
	value K
}

// state says how many values an object has.
type state uint8

const (
	none state = iota
	one
	several
	failed // the function failed on the object
)

// failing is what [Index.Failing] reports.
type failing struct {
	objects int
	last    error
}

// entry says that the object with the key has the value. The slot, which an
// object keeps for as long as it is stored, is not part of the order.
type entry[K cmp.Ordered] struct {
	value K
	key   string
	slot  uint32
}

func before[K cmp.Ordered](a, b entry[K]) bool {
	if c := cmp.Compare(a.value, b.value); c != 0 {
		return c < 0
	}
	return a.key < b.key
}

// newEntries returns a tree of entries, by value and then by key.
func newEntries[K cmp.Ordered]() *btree.BTreeG[entry[K]] {
	return btree.NewBTreeGOptions(before[K], btree.Options{NoLocks: true, Degree: degree})
}

// NewIndex adds an index to s, which may have objects already. The values
// function returns the values to find an object by, none or many; it is called
// once for each new state of an object, by the goroutine that writes it, and
// must depend on the object alone. Name appears in errors.
//
// NewIndex computes the values of the objects that are there in the caller's goroutine.
// Writers do not wait for that; the first snapshot that has the index has all of it.
func NewIndex[T any, K cmp.Ordered](s *Store[T], name string, values func(T) ([]K, error)) *Index[T, K] {
	x := &Index[T, K]{
		name:    name,
		store:   s,
		values:  values,
		entries: newEntries[K](),
	}
	from, j := s.openBacklog()
	// The index is visible to this goroutine alone: there is nothing to lock.
	from.keys.Scan(func(key string, slot uint32) bool {
		x.putLocked(slot, key, from.records.at(slot).object)
		return true
	})
	for range maxRounds {
		writes := s.take(j)
		x.replayLocked(writes)
		if len(writes) <= fewWrites {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.replayLocked(s.takeLocked(j))
	s.closeBacklogLocked(j)
	s.indexes = append(s.indexes, x)
	s.publishLocked()
	return x
}

// Remove takes the index out of its store and frees it. Snapshots that have it
// keep it.
func (x *Index[T, K]) Remove() {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	x.store.indexes = slices.DeleteFunc(slices.Clone(x.store.indexes), func(y indexer[T]) bool { return y == indexer[T](x) })
	x.store.publishLocked()
	x.entries, x.frozen, x.terms, x.many = nil, nil, nil, nil
}

// Failing reports how many objects of the store are not in the index because
// the function failed on them, and its last error, even if that object is gone.
func (x *Index[T, K]) Failing() (objects int, last error) {
	if f := x.failing.Load(); f != nil {
		return f.objects, f.last
	}
	return 0, nil
}

// Get yields the objects of the snapshot that have the value, in key order.
func (x *Index[T, K]) Get(s *Snapshot[T], value K) iter.Seq2[string, T] {
	return objectsOf(s, x.having(s, value))
}

// objectsOf yields the objects of entries of the same snapshot.
func objectsOf[T any, K cmp.Ordered](s *Snapshot[T], entries iter.Seq[entry[K]]) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		f := fetch[T]{records: &s.records, yield: yield}
		for e := range entries {
			if !f.add(e.key, e.slot) {
				return
			}
		}
		f.flush()
	}
}

// Keys is Get without the objects.
func (x *Index[T, K]) Keys(s *Snapshot[T], value K) iter.Seq[string] {
	return func(yield func(string) bool) {
		for e := range x.having(s, value) {
			if !yield(e.key) {
				return
			}
		}
	}
}

// having yields the entries of a value.
func (x *Index[T, K]) having(s *Snapshot[T], value K) iter.Seq[entry[K]] {
	return func(yield func(entry[K]) bool) {
		x.in(s).Ascend(entry[K]{value: value}, func(e entry[K]) bool {
			return e.value == value && yield(e)
		})
	}
}

// Values yields the values that objects of the snapshot have, in order, each
// once.
func (x *Index[T, K]) Values(s *Snapshot[T]) iter.Seq[K] {
	return func(yield func(K) bool) {
		first, last := true, *new(K)
		x.in(s).Scan(func(e entry[K]) bool {
			if !first && e.value == last {
				return true
			}
			first, last = false, e.value
			return yield(e.value)
		})
	}
}

// in is the index as the snapshot has it.
func (x *Index[T, K]) in(s *Snapshot[T]) *btree.BTreeG[entry[K]] {
	for _, f := range s.indexes {
		if f.index == indexer[T](x) {
			return f.entries.(*btree.BTreeG[entry[K]])
		}
	}
	entries := newEntries[K]()
	s.keys.Scan(func(key string, slot uint32) bool {
		// An object the function fails on is in no index.
		values, _ := x.eval(key, s.records.at(slot).object)
		for _, value := range values {
			entries.Set(entry[K]{value, key, slot})
		}
		return true
	})
	return entries
}

func (*Index[T, K]) count(entries any) int { return entries.(*btree.BTreeG[entry[K]]).Len() }

// eval calls the user's function and turns a panic into an error.
func (x *Index[T, K]) eval(key string, obj T) (values []K, err error) {
	defer func() {
		if p := recover(); p != nil {
			values, err = nil, fmt.Errorf("index %s of %s: panic: %v", x.name, key, p)
		}
	}()
	values, err = x.values(obj)
	if err != nil {
		return nil, fmt.Errorf("index %s of %s: %w", x.name, key, err)
	}
	return values, nil
}
