// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/store"
)

var (
	// ErrExpired means that the changes after the cursor's position are no longer in the
	// window. The reader has to start again from a snapshot.
	ErrExpired = errors.New("position is no longer in the log's window")
	// ErrClosed means that the log is closed and everything in it was read.
	ErrClosed = errors.New("log is closed")
)

// Log is a bounded window of changes with many readers. All methods are safe
// for concurrent use.
type Log[T any] struct {
	opts Options[T]
	// window is the part that readers use. It and the published part of its chunks are
	// immutable.
	window  atomic.Pointer[window[T]]
	closed  chan struct{}
	expired atomic.Uint64

	// mu guards the fields below: the writer's state and the waiters.
	mu sync.Mutex
	// count and bytes are the size of the window.
	count int
	bytes int64
	// last is the revision of the newest change ever published.
	last    uint64
	waiting waiters[T]
}

// Stats describes the content of a log and counts events of its readers.
type Stats struct {
	// After and Last bound the window: it has the changes with revisions above
	// After, up to Last.
	After, Last uint64
	// Changes and Bytes are the size of the window.
	Changes int
	Bytes   int64
	// Waiting is how many readers wait for a change.
	Waiting int
	// Expired is how often ErrExpired was returned.
	Expired uint64
}

// New returns an empty log. A nil opts means the defaults.
func New[T any](opts *Options[T]) *Log[T] {
	l := &Log[T]{opts: opts.withDefaults(), closed: make(chan struct{})}
	l.window.Store(&window[T]{})
	l.waiting.dimensions, l.waiting.open = newDimensions(l.opts.Dimensions), l.opts.Open
	return l
}

// Publish appends changes and wakes the readers that they can concern. It never waits for
// readers. Revisions must go up, not necessarily by one. After Close it does nothing. The
// log keeps the changes, not the slice.
func (l *Log[T]) Publish(changes []store.Change[T]) {
	if len(changes) == 0 {
		return
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return
	default:
	}
	l.appendLocked(changes, now)
	// Readers are also woken for changes that trimming drops at once: they must learn
	// that they have expired.
	published := l.window.Load().from(changes[0].Revision - 1)
	l.trimLocked(now, l.opts.Age)
	l.waiting.wakeLocked(changes, published)
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
	next := w.with(c)
	if len(w.chunks) == 0 {
		if l.last == 0 { // a log may begin anywhere
			next.after = first.Revision - 1
		}
		next.splitBy(first)
	}
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
	if drop > 0 {
		l.window.Store(w.without(drop))
	}
}

// Expire drops changes older than [Options.Age]. Publish does the same, so only the owner
// of a log that may receive no changes has to call it now and then.
func (l *Log[T]) Expire() { l.Trim(l.opts.Age) }

// Trim drops changes older than age, which may be less than [Options.Age]. It is for an
// owner of many logs that limits their total size.
func (l *Log[T]) Trim(age time.Duration) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trimLocked(now, min(age, l.opts.Age))
}

// Since returns the revision at which to open a cursor for a reader that has seen
// everything up to a version of the source. The cursor returns the changes with later
// versions. Several changes may share the version. The reader then receives all of them
// again, because it may not have seen every one.
//
// Versions in the log must not go back, except after a [Log.Cut]. After a Cut, only its
// caller knows from which version the log is complete. The error is [ErrExpired].
func (l *Log[T]) Since(version uint64) (uint64, error) {
	w := l.window.Load()
	if version < w.oldest {
		l.expired.Add(1)
		return 0, fmt.Errorf("read after version %d: %w", version, ErrExpired)
	}
	return w.since(version), nil
}

// Oldest returns the lowest version for which Since returns no error.
func (l *Log[T]) Oldest() uint64 { return l.window.Load().oldest }

// Cut drops all changes and continues with those after a revision, which must not be
// below that of the last change. Readers that have not reached the revision get
// [ErrExpired], including waiting ones. It is for a writer that does not know what has
// changed. After Close it does nothing.
func (l *Log[T]) Cut(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return
	default:
	}
	l.count, l.bytes, l.last = 0, 0, revision
	l.window.Store(&window[T]{after: revision})
	l.waiting.wakeAllLocked(revision)
}

// Close ends the log. Readers get the remaining changes and then [ErrClosed]. Close does
// not wait for them.
func (l *Log[T]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
}

// Stats returns the state of the log.
func (l *Log[T]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		After: l.window.Load().after, Last: l.last,
		Changes: l.count, Bytes: l.bytes,
		Waiting: l.waiting.count, Expired: l.expired.Load(),
	}
}
