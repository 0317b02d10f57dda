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

// column returns the chunk's column of a dimension, nil if the dimension does not have
// exactly one value for each object. It takes no lock.
func (c *chunk[T]) column(d *dimension[T]) *column[T] {
	if d.value == nil {
		return nil
	}
	var added *column[T]
	for {
		columns := c.columns.Load()
		var next []*column[T]
		if columns != nil {
			for _, x := range *columns {
				if x.dimension == d {
					return x
				}
			}
			next = append(next, *columns...)
		}
		if added == nil {
			added = &column[T]{dimension: d, states: make([]atomic.Uint64, 2*len(c.changes))}
		}
		next = append(next, added)
		if c.columns.CompareAndSwap(columns, &next) {
			return added
		}
	}
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
