// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import "slices"

// journal records the writes while an index is computed from a snapshot, so that the
// index can catch up without computing its values under the store's lock. It costs
// 48 bytes per write, and keeps the states alive that were written, until then.
type journal[T any] struct {
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
	// maxRounds bounds how often an index catches up without the lock, because a writer
	// may be faster than the index's function.
	maxRounds = 8
	// fewWrites is the number of writes that are indexed under the lock.
	fewWrites = 16
)

// openJournal returns the current snapshot and a journal of all writes after it.
func (s *Store[T]) openJournal() (*Snapshot[T], *journal[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := new(journal[T])
	s.journals = append(s.journals, j)
	return s.Snapshot(), j
}

// take returns the writes since the last call.
func (s *Store[T]) take(j *journal[T]) []write[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(j)
}

func (*Store[T]) takeLocked(j *journal[T]) []write[T] {
	writes := j.writes
	j.writes = nil
	return writes
}

func (s *Store[T]) closeJournalLocked(j *journal[T]) {
	s.journals = slices.DeleteFunc(s.journals, func(other *journal[T]) bool { return other == j })
}

// noteLocked adds a write to every journal.
func (s *Store[T]) noteLocked(w write[T]) {
	for _, j := range s.journals {
		j.writes = append(j.writes, w)
	}
}
