// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// Index finds objects by a value computed from them. It can be read with any snapshot of
// its store. A snapshot that does not have the index, because it is older or was taken
// after [Index.Remove], is searched object by object, with the same result.
type Index[T any, K cmp.Ordered] struct {
	name  string
	store *Store[T]
	// values computes the values of an object, in any order.
	values func(T) ([]K, error)
	// family is shared by the indexes that [Index.AddTo] has made of one.
	family *family

	// The store's mu guards the fields below, except failing.
	entries *btree.BTreeG[entry[K]]
	// frozen is the copy of entries that the current snapshot has, nil if
	// entries has changed since.
	frozen *btree.BTreeG[entry[K]]
	// terms has, by slot, the value that each object is indexed under, so that the entry
	// can be removed when the object changes. many has the values of objects with
	// several.
	terms []term[K]
	many  map[uint32][]K

	failing atomic.Pointer[failing]
}

// family identifies indexes of several stores with the same function.
type family struct{ _ byte } // not empty: each needs an address of its own

// term is the value that an object is indexed under.
type term[K cmp.Ordered] struct {
	state state
	// value is set if state is one.
	value K
}

// state is the number of values of an object, or failed.
type state uint8

const (
	none state = iota
	one
	several
	failed // the function failed on the object
)

// failing is the result of [Index.Failing].
type failing struct {
	objects int
	last    error
}

// entry maps a value to the key of an object that has it. The slot, which an object keeps
// for as long as it is stored, is not part of the order.
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

// NewIndex adds an index to s, which may already have objects. The values function
// returns the values to find an object by, none or many. It is called once for each new
// state of an object, by the goroutine that writes it, and must depend only on the
// object. The name appears in errors.
//
// NewIndex computes the values of the stored objects in the caller's goroutine. Writers
// do not wait for that. The first snapshot that has the index has all of it.
func NewIndex[T any, K cmp.Ordered](s *Store[T], name string, values func(T) ([]K, error)) *Index[T, K] {
	return newIndex(s, name, values, &family{})
}

// AddTo adds the index to another store, which succeeds the first one: the result is also
// found in snapshots of the first store, without computing values again. It does not refer
// to that store.
func (x *Index[T, K]) AddTo(s *Store[T]) *Index[T, K] { return newIndex(s, x.name, x.values, x.family) }

func newIndex[T any, K cmp.Ordered](s *Store[T], name string, values func(T) ([]K, error), of *family) *Index[T, K] {
	x := &Index[T, K]{
		name:    name,
		store:   s,
		values:  values,
		family:  of,
		entries: newEntries[K](),
	}
	s.addIndex(x)
	return x
}

// Remove removes the index from its store and frees it. Snapshots that have it keep it.
func (x *Index[T, K]) Remove() {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	x.store.indexes = slices.DeleteFunc(slices.Clone(x.store.indexes), func(y indexer[T]) bool {
		return y == indexer[T](x)
	})
	x.store.publishLocked()
	x.entries = nil
	x.frozen = nil
	x.terms = nil
	x.many = nil
}

// Failing returns how many objects of the store are missing from the index because the
// function failed on them, and the last error, even if the object that caused it is gone.
func (x *Index[T, K]) Failing() (objects int, last error) {
	if f := x.failing.Load(); f != nil {
		return f.objects, f.last
	}
	return 0, nil
}

// Get yields the objects of the snapshot that have the value, in key order.
func (x *Index[T, K]) Get(s *Snapshot[T], value K) iter.Seq2[string, T] {
	return x.Range(s, value, "", "")
}

// Range is Get for the objects whose keys begin with prefix and come after a given key,
// which need not exist. It finds the first of them in O(log n), so a reader of pages
// passes the last key of a page to read the next one.
func (x *Index[T, K]) Range(s *Snapshot[T], value K, prefix, after string) iter.Seq2[string, T] {
	return objectsOf(s, x.having(s, value, prefix, after))
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
		for e := range x.having(s, value, "", "") {
			if !yield(e.key) {
				return
			}
		}
	}
}

// having yields the entries of a value whose keys begin with prefix and come after a key.
func (x *Index[T, K]) having(s *Snapshot[T], value K, prefix, after string) iter.Seq[entry[K]] {
	return func(yield func(entry[K]) bool) {
		x.in(s).Ascend(entry[K]{value: value, key: max(prefix, after)}, func(e entry[K]) bool {
			if e.value != value || !strings.HasPrefix(e.key, prefix) {
				return false
			}
			return after != "" && e.key <= after || yield(e)
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

// in returns the entries of the index in a snapshot. If the snapshot does not have the
// index, it computes them.
func (x *Index[T, K]) in(s *Snapshot[T]) *btree.BTreeG[entry[K]] {
	for _, f := range s.indexes {
		if own, ok := f.index.(*Index[T, K]); ok && own.family == x.family {
			return f.entries.(*btree.BTreeG[entry[K]])
		}
	}
	entries := newEntries[K]()
	s.keys.Scan(func(key string, slot uint32) bool {
		// An object that the function fails on is in no index.
		values, _ := x.eval(key, s.records.at(slot).object)
		for _, value := range values {
			entries.Set(entry[K]{value, key, slot})
		}
		return true
	})
	return entries
}

func (*Index[T, K]) size(entries any, _ int) int {
	return perEntry * entries.(*btree.BTreeG[entry[K]]).Len()
}

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

// putLocked indexes a new state of the object in the slot.
func (x *Index[T, K]) putLocked(slot uint32, key string, obj T) {
	for int(slot) >= len(x.terms) {
		x.terms = append(x.terms, term[K]{})
	}
	values, err := x.eval(key, obj)
	if err != nil {
		x.removeLocked(slot, key)
		x.terms[slot].state = failed
		x.failingLocked(1, err)
		return
	}
	t := &x.terms[slot]
	// This is by far the most common case: one value, unchanged.
	if t.state == one && len(values) == 1 && t.value == values[0] {
		return
	}
	if len(values) > 1 {
		values = slices.Clone(values)
		slices.Sort(values)
		values = slices.Compact(values)
		if slices.Equal(values, x.many[slot]) {
			return
		}
	}
	x.removeLocked(slot, key)
	if len(values) == 0 {
		return
	}
	x.frozen = nil
	for _, value := range values {
		x.entries.Set(entry[K]{value, key, slot})
	}
	if len(values) == 1 {
		*t = term[K]{state: one, value: values[0]}
		return
	}
	if x.many == nil {
		x.many = make(map[uint32][]K)
	}
	t.state, x.many[slot] = several, values
}

// removeLocked removes the entries of the object in the slot.
func (x *Index[T, K]) removeLocked(slot uint32, key string) {
	t := &x.terms[slot]
	switch t.state {
	case one:
		x.frozen = nil
		x.entries.Delete(entry[K]{value: t.value, key: key})
	case several:
		x.frozen = nil
		for _, value := range x.many[slot] {
			x.entries.Delete(entry[K]{value: value, key: key})
		}
		delete(x.many, slot)
	case failed:
		x.failingLocked(-1, nil)
	}
	*t = term[K]{}
}

// emptyLocked releases the memory of the terms.
func (x *Index[T, K]) emptyLocked() {
	x.terms, x.many = nil, nil
}

// failingLocked updates the result of [Index.Failing].
func (x *Index[T, K]) failingLocked(by int, err error) {
	var now failing
	if last := x.failing.Load(); last != nil {
		now = *last
	}
	now.objects += by
	if err != nil {
		now.last = err
	}
	x.failing.Store(&now)
}

// freezeLocked copies the entries, if they changed since the last time.
func (x *Index[T, K]) freezeLocked() any {
	if x.frozen == nil {
		x.frozen = x.entries.Copy()
	}
	return x.frozen
}

// checkLocked panics if the index differs from the values that its function returns.
func (x *Index[T, K]) checkLocked(keys *keys, objects *rows[record[T]]) {
	want, bad, known := 0, 0, 0
	keys.Scan(func(key string, slot uint32) bool {
		values, err := x.eval(key, objects.at(slot).object)
		if err != nil {
			bad++
		}
		values = slices.Clone(values)
		slices.Sort(values)
		values = slices.Compact(values)
		for _, value := range values {
			if e, ok := x.entries.Get(entry[K]{value: value, key: key}); !ok || e.slot != slot {
				panic(fmt.Sprintf("store: index %s lacks %v of %s", x.name, value, key))
			}
		}
		want += len(values)
		switch x.terms[slot].state {
		case one:
			known++
		case several:
			known += len(x.many[slot])
		}
		return true
	})
	if failing, _ := x.Failing(); x.entries.Len() != want || known != want || failing != bad {
		panic(fmt.Sprintf("store: index %s has %d entries, remembers %d and counts %d failures, want %d and %d",
			x.name, x.entries.Len(), known, failing, want, bad))
	}
}
