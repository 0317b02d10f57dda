// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"sync/atomic"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// column holds the values of the changes of one chunk in one dimension, so that they
// are computed once and not by every reader. It costs 16 bytes for each change that
// the chunk has room for, and lives as long as the chunk.
type column[T any] struct {
	dimension *dimension[T]
	// states holds two values for each change: those of the object before and after it.
	// For a state that does not exist it has the value of the other. 0 means not computed
	// yet. Several readers may compute a value at once, with the same result.
	states []atomic.Uint64
}

// values returns the values of the object before and after the change at an index of
// the chunk.
func (x *column[T]) values(change *store.Change[T], i int) (was, is Value) {
	before, after := &x.states[2*i], &x.states[2*i+1]
	if was, is = Value(before.Load()), Value(after.Load()); was != 0 && is != 0 {
		return was, is
	}
	switch change.Type {
	case delta.Added:
		is = x.dimension.value(change.New)
		was = is
	case delta.Deleted:
		was = x.dimension.value(change.Old)
		is = was
	default:
		was, is = x.dimension.value(change.Old), x.dimension.value(change.New)
	}
	before.Store(uint64(was))
	after.Store(uint64(is))
	return was, is
}
