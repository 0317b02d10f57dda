// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

// indexer is an [Index] of any value type or a column, for the store's writer. Its methods
// are called with the store's mu held, except size.
type indexer[T any] interface {
	putLocked(slot uint32, key string, obj T)
	removeLocked(slot uint32, key string)
	// emptyLocked is called when no object is left.
	emptyLocked()
	// freezeLocked returns the entries, immutable, behind a pointer. It is the same pointer
	// as long as they do not change.
	freezeLocked() any
	// size returns about how many bytes such entries of a number of objects need. It may be
	// called at any time.
	size(entries any, objects int) int
	// checkLocked panics if the entries are not those of the objects.
	checkLocked(keys *keys, objects *rows[record[T]])
}
