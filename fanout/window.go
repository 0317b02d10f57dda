// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"sort"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/store"
)

// chunkSize is the maximum number of changes in a chunk, and in a batch that a reader
// gets. Windows are trimmed by whole chunks. The first chunks of a log are smaller, so
// that a log with few changes stays small.
const chunkSize = 64

// window is the list of chunks at one moment, oldest first. It is replaced, not modified,
// when a chunk is added or dropped. That copies 8 bytes per chunk, once per chunk, or
// Count/512 bytes per change.
type window[T any] struct {
	chunks []*chunk[T]
	// after and version are the revision and the version of the newest change that was
	// dropped.
	after, version uint64
	// oldest is the lowest version that [Log.Since] accepts: version or, if other changes
	// share it, the one after it.
	oldest uint64
}

// chunk is a sequence of changes. The writer fills it; readers see the published part.
type chunk[T any] struct {
	// first is the revision of the first change, set before the change is published.
	first     uint64
	changes   []store.Change[T]
	published atomic.Int32
	// columns has the values of the changes in each dimension that was used and has one
	// value for each object. The slice is replaced, not modified.
	columns atomic.Pointer[[]*column[T]]
	// Only the writer uses bytes and newest.
	bytes  int64
	newest time.Time
}

// seen returns the part of the chunk that readers may read.
func (c *chunk[T]) seen() []store.Change[T] {
	n := c.published.Load()
	return c.changes[:n:n]
}

// byRevision compares a change with a revision, to search for it in a chunk.
func byRevision[T any](c store.Change[T], revision uint64) int {
	switch {
	case c.Revision < revision:
		return -1
	case c.Revision > revision:
		return 1
	default:
		return 0
	}
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

// from returns the chunks that have the changes after a revision.
func (w *window[T]) from(after uint64) []*chunk[T] {
	// Find the first chunk that begins later. The one before it may have such changes
	// too.
	i := sort.Search(len(w.chunks), func(i int) bool { return w.chunks[i].first > after })
	return w.chunks[max(i-1, 0):]
}

// splitBy adjusts oldest if the first change in the window shares its version with a
// dropped one: a reader at that version may not have seen either.
func (w *window[T]) splitBy(first *store.Change[T]) {
	if first.Version == w.version {
		w.oldest = w.version + 1
	}
}

// since returns the revision to continue at for a reader that has seen everything up to
// a version, which must not be below oldest.
func (w *window[T]) since(version uint64) uint64 {
	after, again, same := w.after, w.after, 0
	i := sort.Search(len(w.chunks), func(i int) bool {
		seen := w.chunks[i].seen()
		return len(seen) == 0 || seen[0].Version >= version
	})
	for _, c := range w.chunks[max(i-1, 0):] {
		for _, change := range c.seen() {
			switch {
			case change.Version > version:
				return pick(after, again, same)
			case change.Version == version:
				same++
			default:
				again = change.Revision
			}
			after = change.Revision
		}
	}
	return pick(after, again, same)
}

// pick returns the revision to continue at: after the only change with a version, or
// before all of them if there are several.
func pick(after, again uint64, same int) uint64 {
	if same > 1 {
		return again
	}
	return after
}

// with returns the window with one more chunk, the newest.
func (w *window[T]) with(c *chunk[T]) *window[T] {
	next := &window[T]{chunks: make([]*chunk[T], len(w.chunks)+1), after: w.after, version: w.version, oldest: w.oldest}
	copy(next.chunks, w.chunks)
	next.chunks[len(w.chunks)] = c
	return next
}

// without returns the window without its oldest chunks, at least one.
func (w *window[T]) without(drop int) *window[T] {
	dropped := w.chunks[drop-1].seen()
	last, before := &dropped[len(dropped)-1], w.version
	if n := len(dropped); n > 1 {
		before = dropped[n-2].Version
	} else if drop > 1 {
		seen := w.chunks[drop-2].seen()
		before = seen[len(seen)-1].Version
	}
	next := &window[T]{
		after:   last.Revision,
		version: last.Version,
		oldest:  last.Version,
		chunks:  make([]*chunk[T], len(w.chunks)-drop),
	}
	if before == last.Version {
		next.oldest++
	}
	copy(next.chunks, w.chunks[drop:])
	if len(next.chunks) > 0 {
		next.splitBy(&next.chunks[0].seen()[0])
	}
	return next
}
