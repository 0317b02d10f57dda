// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/watershed-project/watershed/delta"
)

// ErrNoKey is returned for an object whose key is empty.
var ErrNoKey = errors.New("object has no key")

// Options tune a [Store]. The zero value, and nil, are the defaults.
type Options[T any] struct {
	// Same reports whether two states of an object are the same version of it. Such a
	// state is not stored again and makes no change, so a list without news costs nothing
	// downstream. Default: every state is a new version.
	Same func(old, now T) bool
	// Older reports whether now is a state from before old, from a source that repeats
	// changes or reorders them. It is not stored and makes no change, unless the source
	// has gone back on purpose (delta's Replaced with Missed). Default: no state is
	// older.
	Older func(old, now T) bool
}

// Store keeps objects by key. All methods are safe for concurrent use; writers
// take turns.
type Store[T any] struct {
	key     func(T) string
	opts    Options[T]
	current atomic.Pointer[Snapshot[T]]

	// mu guards the fields below, which only writers use.
	mu sync.Mutex
	// keys and table are the writer's; snapshots have copies. ordered means that keys has
	// changed since the last snapshot.
	keys    *keys
	table   table[T]
	ordered bool
	// slots has the slot of each key, so that the writer need not search keys. free has
	// the slots below used that have no object.
	slots map[string]uint32
	free  []uint32
	used  uint32
	// backlogs has one backlog for each index that is being computed.
	backlogs backlogs[T]
	// greatest is the greatest key since the store was last empty. Lists are in key
	// order, so most new keys can be appended to the tree without a search.
	greatest string

	indexes []indexer[T]
	// revision counts changes. version is the newest version applied in the current era;
	// era counts how often the source has gone back.
	revision, version, era uint64
}

// New returns an empty store of objects that key identifies. A nil opts means
// the defaults. It panics if key is nil.
func New[T any](key func(T) string, opts *Options[T]) *Store[T] {
	if key == nil {
		panic("store.New: nil key function")
	}
	s := &Store[T]{key: key, keys: newKeys(), slots: make(map[string]uint32)}
	if opts != nil {
		s.opts = *opts
	}
	s.current.Store(&Snapshot[T]{keys: s.keys.Copy()})
	return s
}

// Snapshot returns the state after the last batch.
func (s *Store[T]) Snapshot() *Snapshot[T] { return s.current.Load() }

// Get is Snapshot().Get. With Get and All, a store implements [delta.Known].
func (s *Store[T]) Get(key string) (T, bool) { return s.Snapshot().Get(key) }

// All is Snapshot().All.
func (s *Store[T]) All() iter.Seq2[string, T] { return s.Snapshot().All() }

// Apply applies deltas in order and publishes the result as one snapshot. It returns the
// changes. A delta without effect has no change: a deletion of an object that is not
// stored, or a state that is the [Options.Same]. Whether a change is Added or Updated
// depends on the store's content, not on the delta's type.
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

// Delete removes one object and reports whether it was stored.
func (s *Store[T]) Delete(key string) bool {
	last, _ := s.Get(key)
	return len(s.Apply([]delta.Delta[T]{{Type: delta.Deleted, Key: key, Object: last}})) > 0
}

// Replace makes list the complete content at the given version. Nothing is stored if one
// of the objects has no key.
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
		s.backlogs.addLocked(write[T]{key: key, slot: slot, object: obj})
	}
}

// insertLocked assigns a slot to a new key.
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
		s.backlogs.addLocked(write[T]{key: key, slot: slot, removed: true})
	}
	s.table.set(slot, record[T]{}) // releases the object
	s.free = append(s.free, slot)
	delete(s.slots, key)
	s.keys.Delete(key)
	s.ordered = true
	if len(s.slots) == 0 {
		s.emptyLocked()
	}
}

// emptyLocked releases the memory that grew with the largest number of objects ever.
func (s *Store[T]) emptyLocked() {
	s.table.records = records[T]{}
	s.slots, s.free, s.used, s.greatest = make(map[string]uint32), nil, 0, ""
	for _, x := range s.indexes {
		x.emptyLocked()
	}
}

// openBacklog returns the current snapshot and a backlog of all writes after it.
func (s *Store[T]) openBacklog() (*Snapshot[T], *backlog[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Snapshot(), s.backlogs.openLocked()
}

// take returns the writes in a backlog since the last call.
func (s *Store[T]) take(b *backlog[T]) []write[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.takeLocked()
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

// checkLocked panics if the published snapshot differs from the writer's state, or an
// index from the values that its function returns.
func (s *Store[T]) checkLocked() {
	now := s.Snapshot()
	if now.Len() != s.keys.Len() || now.Len() != len(s.slots) || now.revision != s.revision {
		panic(fmt.Sprintf("store: snapshot has %d objects at revision %d, the writer %d and %d at %d",
			now.Len(), now.revision, s.keys.Len(), len(s.slots), s.revision))
	}
	if int(s.used) != len(s.slots)+len(s.free) {
		panic(fmt.Sprintf("store: %d slots are used, %d by objects and %d free", s.used, len(s.slots), len(s.free)))
	}
	last, taken := "", make(map[uint32]bool)
	s.keys.Scan(func(key string, slot uint32) bool {
		if got, ok := now.keys.Get(key); !ok || got != slot || s.slots[key] != slot || taken[slot] || key <= last {
			panic(fmt.Sprintf("store: %s has slot %d here and %d in the snapshot, or is out of order", key, slot, got))
		}
		if now.records.at(slot).revision != s.table.at(slot).revision {
			panic(fmt.Sprintf("store: %s has another state in the snapshot", key))
		}
		last, taken[slot] = key, true
		return true
	})
	for _, x := range s.indexes {
		x.checkLocked(s.keys, &s.table.records)
	}
}
