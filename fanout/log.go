// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"errors"
	"fmt"
	"sort"
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
	// ErrNoDimension means that the log does not have the dimension of an interest.
	ErrNoDimension = errors.New("log has no such dimension")
)

// Options tune a [Log]. The zero value, and nil, are the defaults.
type Options[T any] struct {
	// Count is how many changes the window holds at most. Default 10,000.
	Count int
	// Bytes limits the size of the window, as computed by Size. The newest changes, an
	// eighth of it, are kept in any case. Default 64 MiB.
	Bytes int64
	// Size returns the cost of keeping a change, in bytes. Default: 0, so that Bytes has
	// no effect.
	Size func(store.Change[T]) int
	// Age is how long a change is kept at most. Default 5 minutes.
	Age time.Duration
	// Dimensions are what readers can be interested in besides keys.
	Dimensions []Dimension[T]
	// Open, if it is not nil, is called when a reader is the first to name a dimension.
	// It returns that dimension, or false. A log opens at most 64 and keeps them, 300
	// bytes each. A dimension without waiting readers adds no cost to a change.
	Open func(name string) (Dimension[T], bool)
}

func (o *Options[T]) withDefaults() Options[T] {
	var opts Options[T]
	if o != nil {
		opts = *o
	}
	if opts.Count <= 0 {
		opts.Count = 10_000
	}
	if opts.Bytes <= 0 {
		opts.Bytes = 64 << 20
	}
	if opts.Age <= 0 {
		opts.Age = 5 * time.Minute
	}
	return opts
}

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
	after, again, same := w.after, w.after, 0
	i := sort.Search(len(w.chunks), func(i int) bool {
		seen := w.chunks[i].seen()
		return len(seen) == 0 || seen[0].Version >= version
	})
	for _, c := range w.chunks[max(i-1, 0):] {
		for _, change := range c.seen() {
			switch {
			case change.Version > version:
				return pick(after, again, same), nil
			case change.Version == version:
				same++
			default:
				again = change.Revision
			}
			after = change.Revision
		}
	}
	return pick(after, again, same), nil
}

// Oldest returns the lowest version for which Since returns no error.
func (l *Log[T]) Oldest() uint64 { return l.window.Load().oldest }

// pick returns the revision to continue at: after the only change with a version, or
// before all of them if there are several.
func pick(after, again uint64, same int) uint64 {
	if same > 1 {
		return again
	}
	return after
}

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
