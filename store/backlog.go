// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import "slices"

// backlog has the writes since the snapshot that an index is computed from, so that the
// index can catch up without computing its values under the store's lock. Until then it
// costs 48 bytes per write and keeps the written states alive.
type backlog[T any] struct {
	// writes is guarded by the store's mu.
	writes []write[T]
}

// write is a new state of the object in a slot, or its removal.
type write[T any] struct {
	key     string
	slot    uint32
	removed bool
	object  T
}

const (
	// maxRounds limits how often an index catches up without the lock, because a writer
	// may be faster than the index's function.
	maxRounds = 8
	// fewWrites ends the catching up without the lock: after a round with no more writes
	// than that, the rest is indexed under the lock.
	fewWrites = 16
)

// openBacklog returns the current snapshot and a backlog of all writes after it.
func (s *Store[T]) openBacklog() (*Snapshot[T], *backlog[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := new(backlog[T])
	s.backlogs = append(s.backlogs, b)
	return s.Snapshot(), b
}

// take returns the writes since the last call.
func (s *Store[T]) take(b *backlog[T]) []write[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(b)
}

func (*Store[T]) takeLocked(b *backlog[T]) []write[T] {
	writes := b.writes
	b.writes = nil
	return writes
}

func (s *Store[T]) closeBacklogLocked(b *backlog[T]) {
	s.backlogs = slices.DeleteFunc(s.backlogs, func(other *backlog[T]) bool { return other == b })
}

// noteLocked adds a write to every backlog.
func (s *Store[T]) noteLocked(w write[T]) {
	for _, b := range s.backlogs {
		b.writes = append(b.writes, w)
	}
}
