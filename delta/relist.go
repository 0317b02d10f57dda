// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta

import (
	"context"
	"slices"
	"strings"
)

// Replace queues list as the complete state at the given version: each object as Replaced
// and then a Missed deletion of every object that is queued or known and not in list. If
// it fails, the deltas queued so far stay queued, and no deletion is inferred.
func (f *FIFO[T]) Replace(ctx context.Context, list []T, version uint64) error {
	r, err := f.Relist(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, obj := range list {
		if err := r.Add(ctx, obj); err != nil {
			return err
		}
	}
	return r.Commit(ctx, version)
}

// Relist is a complete list that is queued while it arrives, so a list of any size passes
// through the queue's capacity. All other producers wait until it is closed. It is used
// by one goroutine.
//
// It remembers the keys it has seen: a string header and a share of a map per object,
// some 40 bytes, for as long as the list takes. The key of a known object is shared.
type Relist[T any] struct {
	fifo *FIFO[T]
	// initial marks the first list, which determines HasSynced.
	initial bool
	// back means that the source has gone back.
	back bool
	// vague means that the list has an object whose key could not be read.
	vague bool
	// seen has the keys of the list.
	seen   map[string]struct{}
	closed bool
}

// Relist begins a complete list. The caller must Close it.
func (f *FIFO[T]) Relist(ctx context.Context) (*Relist[T], error) {
	return f.relist(ctx, false)
}

// RelistBack is Relist for a source that has gone back to an older version, as etcd does
// when it is restored from a backup. The deltas it queues are marked Missed, and the
// consumer must accept older states and an older version.
func (f *FIFO[T]) RelistBack(ctx context.Context) (*Relist[T], error) {
	return f.relist(ctx, true)
}

func (f *FIFO[T]) relist(ctx context.Context, back bool) (*Relist[T], error) {
	if err := turn(ctx, f.producing, f.closed); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Relist[T]{fifo: f, initial: !f.populated, back: back, seen: make(map[string]struct{})}, nil
}

// Add queues obj as Replaced, unless it is the known state, see [Options.Same].
func (r *Relist[T]) Add(ctx context.Context, obj T) error {
	key, err := r.fifo.KeyOf(obj)
	if err != nil {
		return err
	}
	if known := r.fifo.opts.Known; known != nil {
		// Share the text of the known key. The key of the known object is another one if a
		// transform has renamed the object.
		if last, ok := known.Get(key); ok {
			if own := r.fifo.key(last); own == key {
				key = own
			}
		}
	}
	r.seen[key] = struct{}{}
	return r.fifo.enqueue(ctx, Delta[T]{Type: Replaced, Missed: r.back, Listed: true, Key: key, Object: obj}, r.initial)
}

// Keep marks an object as listed that could not be read. Its last state stays.
func (r *Relist[T]) Keep(key string) { r.seen[key] = struct{}{} }

// KeepAll records that the list has an object whose key could not be read. It may be any
// of the known objects, so the list infers no deletion.
func (r *Relist[T]) KeepAll() { r.vague = true }

// Forget records that an object of the list was deleted while the list was arriving, and
// that its final state could not be read. Commit infers its deletion.
func (r *Relist[T]) Forget(key string) { delete(r.seen, key) }

// Delete queues obj as the final state of an object that was deleted while the list was
// arriving, as happens when a list is streamed as a watch.
func (r *Relist[T]) Delete(ctx context.Context, obj T) error {
	key, err := r.fifo.KeyOf(obj)
	if err != nil {
		return err
	}
	r.Forget(key)
	if !r.fifo.exists(key) {
		return nil
	}
	return r.fifo.enqueue(ctx, Delta[T]{Type: Deleted, Listed: true, Key: key, Object: obj}, r.initial)
}

// Commit completes the list at the given version. It queues the deletions that the list
// implies, in key order, and then a bookmark. The queue has synced once the consumer has
// processed them.
func (r *Relist[T]) Commit(ctx context.Context, version uint64) error {
	f := r.fifo
	// Known is read after pending, for the reason given in Resync.
	pending := f.pending()
	var gone []Delta[T]
	leave := func(key string, obj T) {
		if _, seen := r.seen[key]; !seen && !r.vague {
			gone = append(gone, Delta[T]{
				Type: Deleted, Missed: true, Listed: true, Key: key, Object: obj, Version: version,
			})
		}
	}
	for key, d := range pending {
		if d.Type != Deleted {
			leave(key, d.Object)
		}
	}
	if f.opts.Known != nil {
		for key, obj := range f.opts.Known.All() {
			if _, ok := pending[key]; !ok {
				leave(key, obj)
			}
		}
	}
	slices.SortFunc(gone, func(a, b Delta[T]) int { return strings.Compare(a.Key, b.Key) })
	for _, d := range gone {
		if err := f.put(ctx, d, r.initial); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.populated = true
	f.mu.Unlock()
	if err := f.put(ctx, Delta[T]{
		Type: Bookmark, Missed: r.back, Listed: true, Vague: r.vague, Version: version,
	}, r.initial); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checkSyncedLocked()
	return nil
}

// Close lets other producers continue. If Commit was not called, the list is incomplete:
// its objects stay queued and no deletion is inferred. Closing twice does nothing.
func (r *Relist[T]) Close() {
	if !r.closed {
		r.closed = true
		<-r.fifo.producing
	}
}
