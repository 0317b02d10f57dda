// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
)

var (
	// ErrClosed is returned after the queue is closed: to producers at once, to consumers
	// when the queue is empty.
	ErrClosed = errors.New("delta queue is closed")
	// ErrNoKey is returned for an object whose key is empty.
	ErrNoKey = errors.New("object has no key")
)

// Known is the set of objects that the consumer of a queue already has, usually the store
// that it fills. The queue calls Get while it holds its lock, and All during a producer's
// turn: implementations must not block and must not call the queue.
type Known[T any] interface {
	Get(key string) (T, bool)
	// All yields one consistent state, keys with their objects.
	All() iter.Seq2[string, T]
}

// Options tune a [FIFO]. The zero value, and nil, are the defaults.
type Options[T any] struct {
	// Known determines the effect of a deletion, a complete list and a resync. Without it
	// only queued objects exist.
	Known Known[T]
	// Transform is called once for every object before it is queued, except for objects
	// from Known. If it fails, the producer gets the error and the object is not queued.
	// For a deletion the last known state is queued instead, as Missed.
	Transform func(T) (T, error)
	// Same reports whether an object of a list is the known state of the object. Such an
	// object is not queued, unless other deltas of it wait. Same is called during the
	// producer's turn. Default: every object of a list is queued.
	Same func(known, listed T) bool
	// Version returns an object's version, for [Delta.Version]. Default: 0.
	Version func(T) uint64
	// Capacity is how many deltas may wait before producers block. Default 4096.
	Capacity int
	// Size returns the bytes of an object, for Bytes. Default: 0.
	Size func(T) int
	// Bytes is how many bytes of objects may wait before producers block. One object more
	// is admitted, however large it is. Default: no limit.
	Bytes int
	// Filled, if it is not nil, is called by a producer after each delta that it has
	// queued, without a lock. It must not block. With it a consumer can call
	// [FIFO.TryDrain] and needs no goroutine while the queue is empty.
	Filled func()
}

func (o *Options[T]) withDefaults() Options[T] {
	var opts Options[T]
	if o != nil {
		opts = *o
	}
	if opts.Capacity <= 0 {
		opts.Capacity = 4096
	}
	return opts
}

// FIFO is a bounded queue of deltas. All methods are safe for concurrent use.
type FIFO[T any] struct {
	key  func(T) string
	opts Options[T]

	// producing and consuming are held by the one producer and the one consumer whose
	// turn it is. They are channels, because waiting must be cancellable. They are taken
	// before mu.
	producing, consuming chan struct{}
	synced               chan struct{}
	// closed is closed by Close, and afterClose is called then.
	closed     chan struct{}
	afterClose []*func()

	// mu guards the fields below. No function of the user runs while it is held, except
	// Known.Get.
	mu    sync.Mutex
	queue *queue[T]
	// filled and freed wake the holder of consuming and of producing. They are nil until
	// one has waited.
	filled, freed chan struct{}
	// taken has the deltas that the consumer is processing. Decisions about which objects
	// exist treat them as applied, because they are by the time the decisions take
	// effect.
	taken *queue[T]
	// populated is true after something was put in, or the first list is complete.
	populated bool
	// initial is how many deltas of the first list are not processed yet.
	initial int
}

// New returns an empty queue of objects that key identifies. A nil opts means
// the defaults. It panics if key is nil.
func New[T any](key func(T) string, opts *Options[T]) *FIFO[T] {
	if key == nil {
		panic("delta.New: nil key function")
	}
	return &FIFO[T]{
		key:       key,
		opts:      opts.withDefaults(),
		producing: make(chan struct{}, 1),
		consuming: make(chan struct{}, 1),
		closed:    make(chan struct{}),
		synced:    make(chan struct{}),
		queue:     newQueue(opts.sizeOf()),
		taken:     newQueue(opts.sizeOf()),
	}
}

// sizeOf returns Size, or a function that returns 0.
func (o *Options[T]) sizeOf() func(T) int {
	if o == nil || o.Size == nil {
		return func(T) int { return 0 }
	}
	return o.Size
}

// KeyOf returns the key under which obj is queued.
func (f *FIFO[T]) KeyOf(obj T) (string, error) {
	key := f.key(obj)
	if key == "" {
		return "", ErrNoKey
	}
	return key, nil
}

// Synced returns a channel that is closed when HasSynced becomes true.
func (f *FIFO[T]) Synced() <-chan struct{} { return f.synced }

// HasSynced reports whether the first complete list has been processed, or
// something else was put in first.
func (f *FIFO[T]) HasSynced() bool {
	select {
	case <-f.synced:
		return true
	default:
		return false
	}
}

// Close ends the queue. Producers get [ErrClosed] at once, consumers when they have taken
// what is left. It does not wait.
func (f *FIFO[T]) Close() {
	f.mu.Lock()
	if f.isClosedLocked() {
		f.mu.Unlock()
		return
	}
	close(f.closed)
	calls := f.afterClose
	f.afterClose = nil
	f.mu.Unlock()
	for _, call := range calls {
		(*call)()
	}
}

func (f *FIFO[T]) isClosedLocked() bool {
	select {
	case <-f.closed:
		return true
	default:
		return false
	}
}

// AfterClose makes Close call a function, which must not block, unless forget is called
// before. If the queue is closed already, AfterClose calls it. Waiting in a goroutine instead
// would cost a large program one goroutine per queue.
func (f *FIFO[T]) AfterClose(call func()) (forget func()) {
	f.mu.Lock()
	if f.isClosedLocked() {
		f.mu.Unlock()
		call()
		return func() {}
	}
	defer f.mu.Unlock()
	own := &call
	f.afterClose = append(f.afterClose, own)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.afterClose = slices.DeleteFunc(f.afterClose, func(c *func()) bool { return c == own })
	}
}

// Len returns how many deltas of objects are queued.
func (f *FIFO[T]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queue.live - f.queue.bookmarks
}

// Bytes returns the bytes of the objects that are queued or being processed.
func (f *FIFO[T]) Bytes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queue.bytes + f.taken.bytes
}

// List returns the newest state of every queued object, oldest key first. If the newest
// delta is a deletion, that is the last state.
func (f *FIFO[T]) List() []T {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]T, 0, len(f.queue.chains))
	for _, d := range f.queue.deltasByKey() {
		list = append(list, d.Object)
	}
	return list
}

// ListKeys returns the keys of the queued objects in the order in which Pop takes them.
func (f *FIFO[T]) ListKeys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := make([]string, 0, len(f.queue.chains))
	for key := range f.queue.deltasByKey() {
		keys = append(keys, key)
	}
	return keys
}

// Get returns a copy of the deltas queued for obj's key.
func (f *FIFO[T]) Get(obj T) (Deltas[T], bool) {
	return f.GetByKey(f.key(obj))
}

// GetByKey returns a copy of the deltas queued for key.
func (f *FIFO[T]) GetByKey(key string) (Deltas[T], bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ds := f.queue.of(key)
	return ds, ds != nil
}

// turn waits until the holder of a turn releases it, or until end is closed.
func turn(ctx context.Context, turn chan struct{}, end <-chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case turn <- struct{}{}:
		return nil
	case <-end:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("delta queue: %w", context.Cause(ctx))
	}
}

// waitable returns a channel for signal, which it makes at the first call.
func waitable(c *chan struct{}) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{}, 1)
	}
	return *c
}

// signal leaves a token for the present or the next waiter. It does nothing if c is nil.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// checkSyncedLocked closes synced once the queue is populated and all of the first list
// is processed.
func (f *FIFO[T]) checkSyncedLocked() {
	if !f.populated || f.initial > 0 || f.HasSynced() {
		return
	}
	close(f.synced)
}
