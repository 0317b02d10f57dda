// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package catchup

import (
	"iter"
	"maps"
	"slices"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// missed yields the changes that lead from what a reader has seen, which is base and the
// changes since, to now.
func missed[S State, T comparable](
	objects Objects[S, T], base S, seen [][]store.Change[T], now S,
) iter.Seq[*store.Change[T]] {
	return func(yield func(*store.Change[T]) bool) {
		last := newest(objects, base.Revision(), seen)
		for c := range objects.Diff(base, now) {
			key := objects.Key(c)
			if saw, ok := last[key]; ok {
				delete(last, key)
				if !correct(c, result(saw)) {
					continue
				}
			}
			if !yield(c) {
				return
			}
		}
		// These objects are in now as they were in base, and changed in between, or they
		// are in neither.
		for _, key := range slices.SortedFunc(maps.Keys(last), Key.Compare) {
			c, differs := between(objects, result(last[key]), objects.Get(now, key))
			if !differs {
				continue
			}
			c.Key, c.Revision = key.Object, now.Revision()
			if !yield(&c) {
				return
			}
		}
	}
}

// newest returns the last change of each object among those after a revision.
func newest[S State, T comparable](
	objects Objects[S, T], after uint64, seen [][]store.Change[T],
) map[Key]*store.Change[T] {
	last := map[Key]*store.Change[T]{}
	for _, batch := range seen {
		for i := range batch {
			if c := &batch[i]; c.Revision > after {
				last[objects.Key(c)] = c
			}
		}
	}
	return last
}

// result returns the object after a change, the zero value if it was deleted.
func result[T comparable](c *store.Change[T]) T {
	if c.Type == delta.Deleted {
		return *new(T)
	}
	return c.New
}

// correct turns a change since base into one since what the reader saw, and reports
// whether there is a difference.
func correct[T comparable](c *store.Change[T], saw T) bool {
	absent, gone := saw == *new(T), c.Type == delta.Deleted
	switch {
	case absent && gone, !gone && saw == c.New:
		return false
	case absent:
		c.Type, c.Old = delta.Added, *new(T)
	case gone:
		c.Old, c.New = saw, saw
	default:
		c.Type, c.Old = delta.Updated, saw
	}
	return true
}

// between returns the change from the object that the reader saw to the current one,
// either of which may be absent. It reports whether there is one.
func between[S State, T comparable](objects Objects[S, T], saw, is T) (store.Change[T], bool) {
	switch none := *new(T); {
	case saw == is, saw != none && is != none && objects.Same(saw, is):
		return store.Change[T]{}, false
	case is == none:
		return store.Change[T]{Type: delta.Deleted, Missed: true, Old: saw, New: saw}, true
	case saw == none:
		return store.Change[T]{Type: delta.Added, New: is}, true
	default:
		return store.Change[T]{Type: delta.Updated, Old: saw, New: is}, true
	}
}
