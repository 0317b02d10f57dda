// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"slices"
	"sync"
	"sync/atomic"
)

// columns decides which attributes have a column. The store and its snapshots share it.
type columns[T any] struct {
	attribute func(obj T, name string) (string, bool) // may be nil
	// add computes a column and adds it to the store, if the store is still in use: a
	// snapshot that is kept does not keep the store.
	add func(*column[T])
	// current returns the current snapshot, nil if the store is not in use.
	current func() *Snapshot[T]
	// asks numbers the requests for columns.
	asks atomic.Uint64

	// mu guards the fields below.
	mu sync.Mutex
	// wanted are the attributes that were asked for once and have no column. The second
	// request makes a column, so that a single one leaves nothing behind.
	wanted []string
	// busy means that a goroutine makes a column.
	busy bool
}

// maxWanted is the number of attributes in wanted, the newest ones.
const maxWanted = 64

// want notes a request for an attribute that has no column, and makes one at the second.
func (c *columns[T]) want(name string) {
	if c.attribute == nil || !c.begin(name) {
		return
	}
	defer func() {
		c.mu.Lock()
		c.busy = false
		c.mu.Unlock()
	}()
	made := &column[T]{name: name, attribute: c.attribute}
	made.asked.Store(c.asks.Add(1))
	c.add(made)
}

// begin notes a request and reports whether its goroutine is to make the column.
func (c *columns[T]) begin(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy {
		return false
	}
	if at := slices.Index(c.wanted, name); at >= 0 {
		c.wanted = slices.Delete(c.wanted, at, at+1)
		c.busy = true
		return true
	}
	if len(c.wanted) == maxWanted {
		c.wanted = slices.Delete(c.wanted, 0, 1)
	}
	c.wanted = append(c.wanted, name)
	return false
}

// usefulLocked returns the indexes without the columns that only cost: those that are
// written and not read, and the least recently read one if there are too many. The
// store's mu is held.
func usefulLocked[T any](indexes []indexer[T], objects int) []indexer[T] {
	var drop []indexer[T]
	var oldest *column[T]
	n := 0
	for _, x := range indexes {
		c, ok := x.(*column[T])
		if !ok {
			continue
		}
		if n++; oldest == nil || c.asked.Load() < oldest.asked.Load() {
			oldest = c
		}
		if c.idleLocked(objects) {
			drop = append(drop, c)
		}
	}
	if n-len(drop) > maxColumns {
		drop = append(drop, oldest)
	}
	if drop == nil {
		return indexes
	}
	return slices.DeleteFunc(slices.Clone(indexes), func(x indexer[T]) bool { return slices.Contains(drop, x) })
}
