// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/watershed-project/watershed/delta"
)

// ErrNoKey is returned for an object whose key is empty.
var ErrNoKey = errors.New("object has no key")

// degree is that of the trees: measured, see docs/design/0001-store.md.
const degree = 16

// keys is the order of the objects: key to slot. It changes when objects come and
// go, not when they change.
type keys = btree.Map[string, uint32]

// Options tune a [Store]. The zero value, and nil, are the defaults.
type Options[T any] struct {
	// Same reports that two states of an object are the same version of it.
	// Such a state is not stored again and makes no change, so that a list
	// that brings nothing new costs nothing downstream. Default: no two are.
	Same func(old, now T) bool
	// Older reports that now is a state from before old: a source that repeats
	// itself or mixes up its order. It is not stored and makes no change, unless
	// the source has gone back on purpose (delta's Replaced with Missed).
	// Default: no state is.
	Older func(old, now T) bool
}

// Store keeps objects by key. All methods are safe for concurrent use; writers
// take turns.
type Store[T any] struct {
	key     func(T) string
	opts    Options[T]
	current atomic.Pointer[Snapshot[T]]

	// mu guards the writer's side of everything below.
	mu sync.Mutex
	// keys and table are what snapshots have copies of; ordered says that keys
	// has changed since the last.
	keys    *keys
	table   table[T]
	ordered bool
	// slots spares the writer the search through keys. free are the slots below
	// used that no object has.
	slots map[string]uint32
	free  []uint32
	used  uint32
	// backlogs are those of the indexes that are being computed.
	backlogs []*backlog[T]
	// greatest is the greatest key there ever was: lists come in key order, and
	// the tree need not be searched for a place at its end.
	greatest string

	indexes []indexer[T]
	// revision counts changes; version is the newest version applied in the era,
	// which counts how often the source went back.
	revision, version, era uint64
}

// Change is what a delta did to the store.
type Change[T any] struct {
	// Type is Added, Updated, Deleted or Sync: what happened, whatever the
	// delta that caused it was called.
	Type delta.Type
	// Missed is the delta's: the deletion was inferred, not seen.
	Missed bool
	Key    string
	// Old is the state the store had; the zero value if Type is Added.
	Old T
	// New is the state the store has now. For a deletion it is the final state
	// the source reported, which may be newer than Old.
	New T
	// Revision counts the store's changes, from 1, without gaps.
	Revision uint64
	// Version is the delta's.
	Version uint64
}

// New returns an empty store of objects that key identifies. A nil opts means
// the defaults. It panics if key is nil.
func New[T any](key func(T) string, opts *Options[T]) *Store[T] {
	if key == nil {
		panic("store.New: nil key function")
	}
	s := &Store[T]{key: key, keys: btree.NewMap[string, uint32](degree), slots: make(map[string]uint32)}
	if opts != nil {
		s.opts = *opts
	}
	s.current.Store(&Snapshot[T]{keys: s.keys.Copy()})
	return s
}

// Snapshot is the state after the last batch.
func (s *Store[T]) Snapshot() *Snapshot[T] { return s.current.Load() }

// Get is Snapshot().Get. With All it makes a store a [delta.Known].
func (s *Store[T]) Get(key string) (T, bool) { return s.Snapshot().Get(key) }

// All is Snapshot().All.
func (s *Store[T]) All() iter.Seq2[string, T] { return s.Snapshot().All() }

// Apply applies deltas in order and publishes the result as one snapshot. It
// returns what changed: a delta that changes nothing, a deletion of an object
// that is not there or a state that is the [Options.Same], has no change. The
// delta's type does not decide between Added and Updated; what is there does.
func (s *Store[T]) Apply(deltas []delta.Delta[T]) []Change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applyAllLocked(deltas)
}

// Put stores one object and publishes it. For more than one, Apply is cheaper.
func (s *Store[T]) Put(obj T) error {
	key := s.key(obj)
	if key == "" {
		return ErrNoKey
	}
	s.Apply([]delta.Delta[T]{{Type: delta.Updated, Key: key, Object: obj}})
	return nil
}

// Delete removes one object and reports whether it was there.
func (s *Store[T]) Delete(key string) bool {
	last, _ := s.Get(key)
	return len(s.Apply([]delta.Delta[T]{{Type: delta.Deleted, Key: key, Object: last}})) > 0
}

// Replace makes list, at the given version, all there is. Nothing is stored if
// one of the objects has no key.
func (s *Store[T]) Replace(list []T, version uint64) ([]Change[T], error) {
	deltas := make([]delta.Delta[T], 0, len(list))
	listed := make(map[string]struct{}, len(list))
	for _, obj := range list {
		key := s.key(obj)
		if key == "" {
			return nil, ErrNoKey
		}
		listed[key] = struct{}{}
		deltas = append(deltas, delta.Delta[T]{Type: delta.Replaced, Key: key, Object: obj, Version: version})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys.Scan(func(key string, slot uint32) bool {
		if _, ok := listed[key]; !ok {
			deltas = append(deltas, delta.Delta[T]{Type: delta.Deleted, Missed: true, Key: key, Object: s.table.at(slot).object, Version: version})
		}
		return true
	})
	return s.applyAllLocked(deltas), nil
}

func (s *Store[T]) applyAllLocked(deltas []delta.Delta[T]) []Change[T] {
	changes := make([]Change[T], 0, len(deltas))
	for i := range deltas {
		if c, ok := s.applyLocked(&deltas[i]); ok {
			changes = append(changes, c)
		}
	}
	s.publishLocked()
	return changes
}

func (s *Store[T]) applyLocked(d *delta.Delta[T]) (Change[T], bool) {
	if d.Type == delta.Bookmark {
		s.version = max(s.version, d.Version)
		if d.Missed {
			s.version = d.Version
			s.era++
		}
		return Change[T]{}, false
	}
	s.version = max(s.version, d.Version)
	c := Change[T]{Missed: d.Missed && d.Type == delta.Deleted, Key: d.Key, New: d.Object, Revision: s.revision + 1, Version: d.Version}
	slot, stored := s.slots[d.Key]
	if stored {
		c.Old = s.table.at(slot).object
	}
	switch {
	case d.Type == delta.Deleted:
		if !stored || s.olderLocked(c.Old, d) {
			return c, false
		}
		c.Type = delta.Deleted
		s.removeLocked(d.Key, slot)
	case d.Type == delta.Sync:
		if !stored {
			return c, false
		}
		c.Type, c.New = delta.Sync, c.Old
	case !stored:
		c.Type = delta.Added
		slot = s.insertLocked(d.Key)
		s.putLocked(d.Key, slot, d.Object, c.Revision)
	case s.opts.Same != nil && s.opts.Same(c.Old, d.Object):
		return c, false
	case s.olderLocked(c.Old, d):
		return c, false
	default:
		c.Type = delta.Updated
		s.putLocked(d.Key, slot, d.Object, c.Revision)
	}
	s.revision = c.Revision
	return c, true
}

func (s *Store[T]) olderLocked(old T, d *delta.Delta[T]) bool {
	return s.opts.Older != nil && !d.Missed && s.opts.Older(old, d.Object)
}

func (s *Store[T]) putLocked(key string, slot uint32, obj T, revision uint64) {
	s.table.set(slot, record[T]{object: obj, revision: revision})
	for _, x := range s.indexes {
		x.putLocked(slot, key, obj)
	}
	if len(s.backlogs) > 0 {
		s.noteLocked(write[T]{key: key, slot: slot, object: obj})
	}
}

// insertLocked gives a new key a slot.
func (s *Store[T]) insertLocked(key string) uint32 {
	slot := s.used
	if n := len(s.free); n > 0 {
		slot, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.used++
	}
	s.slots[key] = slot
	if key > s.greatest {
		s.greatest = key
		s.keys.Load(key, slot)
	} else {
		s.keys.Set(key, slot)
	}
	s.ordered = true
	return slot
}

func (s *Store[T]) removeLocked(key string, slot uint32) {
	for _, x := range s.indexes {
		x.removeLocked(slot, key)
	}
	if len(s.backlogs) > 0 {
		s.noteLocked(write[T]{key: key, slot: slot, removed: true})
	}
	s.table.set(slot, record[T]{}) // lets go of the object
	s.free = append(s.free, slot)
	delete(s.slots, key)
	s.keys.Delete(key)
	s.ordered = true
	if len(s.slots) == 0 {
		s.emptyLocked()
	}
}

// emptyLocked gives back the room that the most objects ever took.
func (s *Store[T]) emptyLocked() {
	s.table.records = records[T]{}
	s.slots, s.free, s.used, s.greatest = make(map[string]uint32), nil, 0, ""
	for _, x := range s.indexes {
		x.emptyLocked()
	}
}

// publishLocked makes the writer's state the current snapshot.
func (s *Store[T]) publishLocked() {
	last := s.current.Load()
	if s.revision == last.revision && s.version == last.version && s.era == last.era && slices.EqualFunc(s.indexes, last.indexes,
		func(x indexer[T], f frozen[T]) bool { return x == f.index }) {
		return
	}
	next := &Snapshot[T]{keys: last.keys, records: s.table.freeze(), revision: s.revision, version: s.version, era: s.era}
	if s.ordered {
		next.keys, s.ordered = s.keys.Copy(), false
	}
	if len(s.indexes) > 0 {
		next.indexes = make([]frozen[T], len(s.indexes))
		for i, x := range s.indexes {
			next.indexes[i] = frozen[T]{index: x, entries: x.freezeLocked()}
		}
	}
	s.current.Store(next)
	if invariants {
		s.checkLocked()
	}
}
