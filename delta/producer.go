// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta

import (
	"context"
	"errors"
	"fmt"
)

// Add queues obj as a new object.
func (f *FIFO[T]) Add(ctx context.Context, obj T) error {
	return f.change(ctx, Added, obj)
}

// Update queues obj as a new state of an object.
func (f *FIFO[T]) Update(ctx context.Context, obj T) error {
	return f.change(ctx, Updated, obj)
}

// Delete queues obj as the final state of an object that is gone. If the object is
// neither queued nor known, Delete queues nothing.
func (f *FIFO[T]) Delete(ctx context.Context, obj T) error {
	return f.change(ctx, Deleted, obj)
}

// DeleteKey queues a Missed deletion of the object with the key, for a deletion whose
// final state could not be read. The deletion carries the last state that is queued or
// known. If there is none, or it is newer than version, nothing is queued. A version of 0
// is not compared.
func (f *FIFO[T]) DeleteKey(ctx context.Context, key string, version uint64) error {
	if err := turn(ctx, f.producing, f.closed); err != nil {
		return err
	}
	defer func() { <-f.producing }()
	f.populate()
	last, ok := f.last(key)
	if !ok || version != 0 && version < f.version(last) {
		return nil
	}
	return f.put(ctx, Delta[T]{Type: Deleted, Missed: true, Key: key, Object: last, Version: version}, false)
}

// Bookmark queues a version that the source has reached without further changes. Of two
// bookmarks in a row only the later one is kept.
func (f *FIFO[T]) Bookmark(ctx context.Context, version uint64) error {
	if err := turn(ctx, f.producing, f.closed); err != nil {
		return err
	}
	defer func() { <-f.producing }()
	return f.put(ctx, Delta[T]{Type: Bookmark, Version: version}, false)
}

func (f *FIFO[T]) change(ctx context.Context, typ Type, obj T) error {
	key, err := f.KeyOf(obj)
	if err != nil {
		return err
	}
	if err := turn(ctx, f.producing, f.closed); err != nil {
		return err
	}
	defer func() { <-f.producing }()
	f.populate()
	if typ == Deleted && !f.exists(key) {
		return nil // the deletion needs neither a transform nor room in the queue
	}
	return f.enqueue(ctx, Delta[T]{Type: typ, Key: key, Object: obj}, false)
}

// enqueue transforms and puts one object of the source. The caller holds the producers'
// turn.
func (f *FIFO[T]) enqueue(ctx context.Context, d Delta[T], initial bool) error {
	d.Version = f.version(d.Object)
	var err error
	if f.opts.Transform != nil {
		obj, failed := f.opts.Transform(d.Object)
		if err = failed; err == nil {
			d.Object = obj
		}
	}
	if err == nil {
		if f.unchanged(d) {
			return nil
		}
		return f.put(ctx, d, initial)
	}
	err = fmt.Errorf("transform %s: %w", d.Key, err)
	if d.Type == Deleted {
		// The object is gone, whatever its final state was, unless this is a repeated old
		// deletion of an object that was created again since.
		if last, ok := f.last(d.Key); ok && d.Version >= f.version(last) {
			d.Missed, d.Object = true, last
			return errors.Join(err, f.put(ctx, d, initial))
		}
	}
	return err
}

// unchanged reports whether d is an object of a list that the consumer has in the same
// state. The caller holds the producers' turn, so no other delta of it is queued meanwhile.
func (f *FIFO[T]) unchanged(d Delta[T]) bool {
	if d.Type != Replaced || d.Missed || f.opts.Same == nil || f.opts.Known == nil {
		return false
	}
	f.mu.Lock()
	_, taken := f.taken.newest(d.Key)
	waits := taken || f.queue.has(d.Key)
	f.mu.Unlock()
	if waits {
		return false
	}
	known, ok := f.opts.Known.Get(d.Key)
	return ok && f.opts.Same(known, d.Object)
}

// last returns the newest state of an object that is queued, being processed or known.
func (f *FIFO[T]) last(key string) (T, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range []*queue[T]{f.queue, f.taken} {
		if d, ok := q.newest(key); ok {
			return d.Object, d.Type != Deleted
		}
	}
	if f.opts.Known == nil {
		return *new(T), false
	}
	return f.opts.Known.Get(key)
}

func (f *FIFO[T]) version(obj T) uint64 {
	if f.opts.Version == nil {
		return 0
	}
	return f.opts.Version(obj)
}

// populate records that something other than a complete list came first, so that there is
// no initial population to wait for.
func (f *FIFO[T]) populate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.populated {
		f.populated, f.initial = true, 0
		f.checkSyncedLocked()
	}
}

// put waits for room and queues d. The caller holds the producers' turn.
func (f *FIFO[T]) put(ctx context.Context, d Delta[T], initial bool) error {
	for {
		f.mu.Lock()
		if f.isClosedLocked() {
			f.mu.Unlock()
			return ErrClosed
		}
		if f.queue.live < f.opts.Capacity && (f.opts.Bytes <= 0 || f.queue.bytes < f.opts.Bytes) {
			// Check again under the lock: the consumer may just have taken a deletion
			// that this one would have been merged with.
			if d.Type == Deleted && !d.Missed && !f.existsLocked(d.Key) {
				f.mu.Unlock()
				return nil
			}
			// The bookmark of the first list belongs to it while other deltas of it are
			// unprocessed, so that the version is known when the queue has synced.
			if d.Type == Bookmark {
				initial = initial && f.initial > 0
			}
			if f.queue.put(d, initial) && initial {
				f.initial++
			}
			signal(f.filled)
			f.mu.Unlock()
			if f.opts.Filled != nil {
				f.opts.Filled()
			}
			return nil
		}
		freed := waitable(&f.freed)
		f.mu.Unlock()
		select {
		case <-freed:
		case <-f.closed:
		case <-ctx.Done():
			return fmt.Errorf("delta queue: %s %s: %w", d.Type, d.Key, context.Cause(ctx))
		}
	}
}

// exists reports whether key is queued, or will be known once the consumer has processed
// the deltas it has taken.
func (f *FIFO[T]) exists(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.existsLocked(key)
}

func (f *FIFO[T]) existsLocked(key string) bool {
	if f.queue.has(key) {
		return true
	}
	if f.opts.Known == nil {
		return false
	}
	if d, ok := f.taken.newest(key); ok {
		return d.Type != Deleted
	}
	_, ok := f.opts.Known.Get(key)
	return ok
}

// pending returns the newest delta of every key that is queued or being processed, which
// Known does not show yet. Its size is at most twice the capacity.
func (f *FIFO[T]) pending() map[string]Delta[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	pending := make(map[string]Delta[T], len(f.queue.chains)+len(f.taken.chains))
	if f.opts.Known != nil {
		for key, d := range f.taken.deltasByKey() {
			pending[key] = d
		}
	}
	for key, d := range f.queue.deltasByKey() {
		pending[key] = d
	}
	return pending
}

// Resync queues a Sync of every known object that is not queued already, in the order of
// Known.All. Without Known it does nothing.
func (f *FIFO[T]) Resync(ctx context.Context) error {
	if f.opts.Known == nil {
		return nil
	}
	if err := turn(ctx, f.producing, f.closed); err != nil {
		return err
	}
	defer func() { <-f.producing }()
	// Known is read after pending: changes that the consumer applies in between are in
	// pending, so Resync never queues a state older than one already queued.
	pending := f.pending()
	for key, obj := range f.opts.Known.All() {
		if _, ok := pending[key]; ok {
			continue
		}
		if err := f.put(ctx, Delta[T]{Type: Sync, Key: key, Object: obj, Version: f.version(obj)}, false); err != nil {
			return err
		}
	}
	return nil
}
