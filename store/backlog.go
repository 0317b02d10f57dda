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

// takeLocked returns the writes since the last call.
func (b *backlog[T]) takeLocked() []write[T] {
	writes := b.writes
	b.writes = nil
	return writes
}

// replay indexes writes in their order.
func replay[T any](writes []write[T], x indexer[T]) {
	for i := range writes {
		if w := &writes[i]; w.removed {
			x.removeLocked(w.slot, w.key)
		} else {
			x.putLocked(w.slot, w.key, w.object)
		}
	}
}

// backlogs has the open backlogs of a store, whose mu guards it.
type backlogs[T any] []*backlog[T]

// openLocked returns a backlog of all writes from now on.
func (all *backlogs[T]) openLocked() *backlog[T] {
	b := new(backlog[T])
	*all = append(*all, b)
	return b
}

// closeLocked ends a backlog.
func (all *backlogs[T]) closeLocked(b *backlog[T]) {
	*all = slices.DeleteFunc(*all, func(other *backlog[T]) bool { return other == b })
}

// addLocked adds a write to every backlog.
func (all backlogs[T]) addLocked(w write[T]) {
	for _, b := range all {
		b.writes = append(b.writes, w)
	}
}
