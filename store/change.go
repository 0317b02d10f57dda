// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import "github.com/watershed-project/watershed/delta"

// Change is the effect of a delta on the store.
type Change[T any] struct {
	// Type is Added, Updated, Deleted or Sync. It is the effect on the store, which may
	// differ from the type of the delta.
	Type delta.Type
	// Missed marks a Deleted whose New may not be the final state, as in the delta.
	Missed bool
	Key    string
	// Old is the previous state in the store; the zero value if Type is Added.
	Old T
	// New is the state that the store has now. For a deletion it is the final state that
	// the source reported, which may be newer than Old.
	New T
	// Revision counts the store's changes, from 1, without gaps.
	Revision uint64
	// Version is the version of the delta.
	Version uint64
}
