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
	"weak"

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
	// Attribute returns an attribute of an object, a label for example, and whether it has
	// it. It is what [Snapshot.Having] finds objects by. It must depend only on the object
	// and must not panic. Writers and readers call it. Default: objects have no attributes.
	Attribute func(obj T, name string) (string, bool)
}

// Store keeps objects by key. All methods are safe for concurrent use; writers
// take turns.
type Store[T any] struct {
	key     func(T) string
	opts    Options[T]
	current atomic.Pointer[Snapshot[T]]
	columns *columns[T]

	// mu guards the fields below, which only writers use.
	mu sync.Mutex
	// keys, names and table are the writer's; snapshots have copies. names has the key of
	// each slot, "" if the slot is free. moved means that keys, names and finder have
	// changed since the last snapshot.
	keys  *keys
	names table[string]
	table table[record[T]]
	moved bool
	// finder is shared with the snapshots of its time.
	finder *finder
	// free has the slots below used that have no object.
	free []uint32
	used uint32
	// backlogs has one backlog for each index that is being computed.
	backlogs backlogs[T]
	// greatest is the greatest key since the store was last empty. Lists are in key
	// order, so most new keys can be appended to the tree without a search.
	greatest string

	indexes []indexer[T]
	// fetched makes the compiler keep the reads of fetchLocked.
	fetched uint64
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
	s := &Store[T]{key: key, keys: newKeys(), finder: new(finder)}
	if opts != nil {
		s.opts = *opts
	}
	ref := weak.Make(s)
	s.columns = &columns[T]{
		attribute: s.opts.Attribute,
		add: func(c *column[T]) {
			if s := ref.Value(); s != nil {
				s.addColumn(c)
			}
		},
		current: func() *Snapshot[T] {
			if s := ref.Value(); s != nil {
				return s.Snapshot()
			}
			return nil
		},
	}
	s.current.Store(&Snapshot[T]{columns: s.columns, keys: s.keys.Copy(), finder: s.finder})
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
			deltas = append(deltas, delta.Delta[T]{
				Type: delta.Deleted, Missed: true, Key: key, Object: s.table.at(slot).object, Version: version,
			})
		}
		return true
	})
	return s.applyAllLocked(deltas), nil
}

func (s *Store[T]) applyAllLocked(deltas []delta.Delta[T]) []Change[T] {
	changes := make([]Change[T], 0, len(deltas))
	for i := range deltas {
		if i%fetchAhead == 0 {
			s.fetchLocked(deltas[i:min(i+fetchAhead, len(deltas))])
		}
		if c, ok := s.applyLocked(&deltas[i]); ok {
			changes = append(changes, c)
		}
	}
	s.publishLocked()
	return changes
}

// fetchAhead is the number of deltas whose places in memory are fetched at once.
const fetchAhead = 16

// fetchLocked reads what applying deltas will read. Where an object is follows from
// several reads that depend on each other, and each may have to wait for the memory. Here
// the processor waits for those of all deltas together.
func (s *Store[T]) fetchLocked(deltas []delta.Delta[T]) {
	if len(deltas) < 2 {
		return
	}
	var hints [fetchAhead]uint32
	for i := range deltas {
		hints[i] = s.finder.hint(deltas[i].Key)
	}
	var names [fetchAhead]string
	for i := range deltas {
		if n := hints[i]; n > 0 && n <= s.used {
			names[i] = *s.names.at(n - 1)
			s.fetched += s.table.at(n - 1).revision
		}
	}
	for _, name := range names[:len(deltas)] {
		if name != "" {
			s.fetched += uint64(name[len(name)-1])
		}
	}
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
	c := Change[T]{
		Missed:   d.Missed && d.Type == delta.Deleted,
		Key:      d.Key,
		New:      d.Object,
		Revision: s.revision + 1,
		Version:  d.Version,
	}
	slot, stored := s.finder.find(d.Key, &s.names.rows, s.used)
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
	s.names.set(slot, key)
	if s.finder.full(slot) {
		s.finder = newFinder(&s.names.rows, s.used, s.keys.Len()+1)
	} else {
		s.finder.insert(key, slot)
	}
	if key > s.greatest {
		s.greatest = key
		s.keys.Load(key, slot)
	} else {
		s.keys.Set(key, slot)
	}
	s.moved = true
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
	s.finder.remove(key, slot)
	s.names.set(slot, "")
	s.keys.Delete(key)
	s.moved = true
	if s.keys.Len() == 0 {
		s.emptyLocked()
	}
}

// emptyLocked releases the memory that grew with the largest number of objects ever.
func (s *Store[T]) emptyLocked() {
	s.table.rows, s.names.rows = rows[record[T]]{}, rows[string]{}
	s.finder = new(finder)
	s.free = nil
	s.used = 0
	s.greatest = ""
	for _, x := range s.indexes {
		x.emptyLocked()
	}
}

// addIndex computes an index or a column of the stored objects, adds it and publishes it.
// Writers do not wait for the computation.
func (s *Store[T]) addIndex(x indexer[T]) {
	from, b := s.openBacklog()
	// Only this goroutine has x yet, so it needs no lock.
	from.keys.Scan(func(key string, slot uint32) bool {
		x.putLocked(slot, key, from.records.at(slot).object)
		return true
	})
	for range maxRounds {
		writes := s.take(b)
		replay(writes, x)
		if len(writes) <= fewWrites {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	replay(b.takeLocked(), x)
	s.backlogs.closeLocked(b)
	s.indexes = append(s.indexes, x)
	s.publishLocked()
}

// addColumn adds a column, unless there is one of the attribute, which snapshots from
// before it lack.
func (s *Store[T]) addColumn(c *column[T]) {
	for _, f := range s.Snapshot().indexes {
		if other, ok := f.index.(*column[T]); ok && other.name == c.name {
			return
		}
	}
	s.addIndex(c)
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
	s.indexes = usefulLocked(s.indexes, s.keys.Len())
	last := s.current.Load()
	if s.revision == last.revision && s.version == last.version && s.era == last.era &&
		slices.EqualFunc(s.indexes, last.indexes,
			func(x indexer[T], f frozen[T]) bool { return x == f.index }) {
		return
	}
	next := &Snapshot[T]{
		columns: s.columns, keys: last.keys, names: last.names, slots: last.slots, finder: last.finder,
		removals: last.removals,
		records:  s.table.freeze(), revision: s.revision, version: s.version, era: s.era,
	}
	if s.moved {
		next.keys, next.names, next.slots = s.keys.Copy(), s.names.freeze(), s.used
		next.finder, next.removals, s.moved = s.finder, s.finder.removals.Load(), false
	}
	next.indexes = s.freezeIndexesLocked(last.indexes)
	s.current.Store(next)
	if invariants {
		s.checkLocked()
	}
}

// freezeIndexesLocked returns the indexes for the next snapshot, which are often those of
// the last one.
func (s *Store[T]) freezeIndexesLocked(last []frozen[T]) []frozen[T] {
	same := func(x indexer[T], f frozen[T]) bool { return x == f.index && x.freezeLocked() == f.entries }
	if slices.EqualFunc(s.indexes, last, same) {
		return last
	}
	next := make([]frozen[T], len(s.indexes))
	for i, x := range s.indexes {
		next[i] = frozen[T]{index: x, entries: x.freezeLocked()}
	}
	return next
}

// checkLocked panics if the published snapshot differs from the writer's state, or an
// index from the values that its function returns.
func (s *Store[T]) checkLocked() {
	now := s.Snapshot()
	if now.Len() != s.keys.Len() || now.slots != s.used || now.revision != s.revision {
		panic(fmt.Sprintf("store: snapshot has %d objects in %d slots at revision %d, the writer %d in %d at %d",
			now.Len(), now.slots, now.revision, s.keys.Len(), s.used, s.revision))
	}
	if int(s.used) != s.keys.Len()+len(s.free) {
		panic(fmt.Sprintf("store: %d slots are used, %d by objects and %d free", s.used, s.keys.Len(), len(s.free)))
	}
	last, taken := "", make(map[uint32]bool)
	s.keys.Scan(func(key string, slot uint32) bool {
		if got, ok := now.keys.Get(key); !ok || got != slot || *s.names.at(slot) != key || taken[slot] || key <= last {
			panic(fmt.Sprintf("store: %s has slot %d here and %d in the snapshot, or is out of order", key, slot, got))
		}
		if found, ok := now.finder.find(key, &now.names, now.slots); !ok || found != slot {
			panic(fmt.Sprintf("store: %s is found in slot %d of the snapshot, want %d", key, found, slot))
		}
		if now.records.at(slot).revision != s.table.at(slot).revision {
			panic(fmt.Sprintf("store: %s has another state in the snapshot", key))
		}
		last, taken[slot] = key, true
		return true
	})
	for _, x := range s.indexes {
		x.checkLocked(s.keys, &s.table.rows)
	}
}
