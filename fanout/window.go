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

// from returns the chunks that have the changes after a revision.
func (w *window[T]) from(after uint64) []*chunk[T] {
	// Find the first chunk that begins later. The one before it may have such changes
	// too.
	i := sort.Search(len(w.chunks), func(i int) bool { return w.chunks[i].first > after })
	return w.chunks[max(i-1, 0):]
}

// appendLocked adds changes to the newest chunk and to new ones.
func (l *Log[T]) appendLocked(changes []store.Change[T], now time.Time) {
	for len(changes) > 0 {
		c := l.newestLocked()
		if c == nil {
			c = l.growLocked(len(changes), &changes[0])
		}
		at := int(c.published.Load())
		n := min(len(c.changes)-at, len(changes))
		if l.opts.Size != nil {
			n = l.weighLocked(c, changes[:n])
		}
		copy(c.changes[at:], changes[:n])
		c.newest = now
		l.count += n
		l.last = changes[n-1].Revision
		c.published.Store(int32(at + n))
		changes = changes[n:]
	}
}

// newestLocked returns the newest chunk if it has room, or nil.
func (l *Log[T]) newestLocked() *chunk[T] {
	chunks := l.window.Load().chunks
	if len(chunks) == 0 {
		return nil
	}
	c := chunks[len(chunks)-1]
	if int(c.published.Load()) == len(c.changes) || c.bytes > l.opts.Bytes/8 {
		return nil
	}
	return c
}

// growLocked adds a chunk for up to n changes, limited by the size of a chunk.
func (l *Log[T]) growLocked(n int, first *store.Change[T]) *chunk[T] {
	w := l.window.Load()
	size := 4
	if len(w.chunks) > 0 {
		size = 2 * len(w.chunks[len(w.chunks)-1].changes)
	}
	size = min(max(size, n), chunkSize, max(l.opts.Count/8, 1))
	c := &chunk[T]{first: first.Revision, changes: make([]store.Change[T], size)}
	next := &window[T]{chunks: make([]*chunk[T], len(w.chunks)+1), after: w.after, version: w.version, oldest: w.oldest}
	if len(w.chunks) == 0 {
		if l.last == 0 { // a log may begin anywhere
			next.after = first.Revision - 1
		}
		next.splitBy(first)
	}
	copy(next.chunks, w.chunks)
	next.chunks[len(w.chunks)] = c
	l.window.Store(next)
	return c
}

// weighLocked adds the sizes of changes to the chunk and returns how many the chunk takes
// before it has reached its share of the bytes.
func (l *Log[T]) weighLocked(c *chunk[T], changes []store.Change[T]) int {
	for i := range changes {
		size := int64(l.opts.Size(changes[i]))
		c.bytes += size
		l.bytes += size
		if c.bytes > l.opts.Bytes/8 {
			return i + 1
		}
	}
	return len(changes)
}

// trimLocked drops the oldest chunks until the window is within its bounds.
func (l *Log[T]) trimLocked(now time.Time, age time.Duration) {
	w := l.window.Load()
	drop := 0
	for drop < len(w.chunks) {
		c := w.chunks[drop]
		heavy := l.bytes > l.opts.Bytes && drop < len(w.chunks)-1
		if l.count <= l.opts.Count && !heavy && now.Sub(c.newest) <= age {
			break
		}
		l.count -= int(c.published.Load())
		l.bytes -= c.bytes
		drop++
	}
	if drop == 0 {
		return
	}
	dropped := w.chunks[drop-1].seen()
	last, before := &dropped[len(dropped)-1], w.version
	if n := len(dropped); n > 1 {
		before = dropped[n-2].Version
	} else if drop > 1 {
		seen := w.chunks[drop-2].seen()
		before = seen[len(seen)-1].Version
	}
	next := &window[T]{after: last.Revision, version: last.Version, oldest: last.Version, chunks: make([]*chunk[T], len(w.chunks)-drop)}
	if before == last.Version {
		next.oldest++
	}
	copy(next.chunks, w.chunks[drop:])
	if len(next.chunks) > 0 {
		next.splitBy(&next.chunks[0].seen()[0])
	}
	l.window.Store(next)
}

// splitBy adjusts oldest if the first change in the window shares its version with a
// dropped one: a reader at that version may not have seen either.
func (w *window[T]) splitBy(first *store.Change[T]) {
	if first.Version == w.version {
		w.oldest = w.version + 1
	}
}
