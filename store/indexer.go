// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

// indexer is an [Index] of any value type, for the store's writer. Its methods are called
// with the store's mu held, except count.
type indexer[T any] interface {
	putLocked(slot uint32, key string, obj T)
	removeLocked(slot uint32, key string)
	// emptyLocked is called when no object is left.
	emptyLocked()
	// freezeLocked returns the entries as an immutable *btree.BTreeG.
	freezeLocked() any
	// count returns the number of such entries. It may be called at any time.
	count(entries any) int
	// checkLocked panics if the entries are not those of the objects.
	checkLocked(keys *keys, objects *records[T])
}
