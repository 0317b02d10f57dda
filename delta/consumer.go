// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta

import (
	"context"
	"fmt"
)

// Process handles deltas that were taken from the queue. initial reports whether they
// belong to the first complete list. The slice is valid until Process returns. Process
// must not take from the same queue, because it would wait for itself.
type Process[T any] func(deltas Deltas[T], initial bool) error

// Pop waits until the queue is not empty, removes all deltas of the oldest key and calls
// process with them. It returns the error of process. The deltas are not queued again,
// even if process fails.
func (f *FIFO[T]) Pop(ctx context.Context, process Process[T]) error {
	return f.consume(ctx, f.takeOldestLocked, func(deltas Deltas[T]) error {
		return process(deltas, !f.HasSynced())
	})
}

// Drain is Pop for everything that is queued, in the order of arrival. Where the first
// complete list ends, it calls process twice, so that initial is true for all deltas of a
// call or for none. If the first call fails, the second is not made.
func (f *FIFO[T]) Drain(ctx context.Context, process Process[T]) error {
	return f.consume(ctx, f.takeAllLocked, f.inParts(process))
}

// TryDrain is Drain for a caller that does not wait. It returns false if the queue is
// empty, or another consumer is at work.
func (f *FIFO[T]) TryDrain(process Process[T]) (bool, error) {
	select {
	case f.consuming <- struct{}{}:
		defer func() { <-f.consuming }()
	default:
		return false, nil
	}
	f.mu.Lock()
	if f.queue.live == 0 {
		f.mu.Unlock()
		return false, nil
	}
	f.takeAllLocked()
	signal(f.freed)
	f.mu.Unlock()
	return true, f.lend(f.inParts(process))
}

// inParts returns a function that calls process for the initial deltas, and then for the
// others.
func (f *FIFO[T]) inParts(process Process[T]) func(Deltas[T]) error {
	return func(deltas Deltas[T]) error {
		initial := f.takenInitial()
		if initial > 0 {
			if err := process(deltas[:initial:initial], true); err != nil || initial == len(deltas) {
				return err
			}
			f.processed()
		}
		return process(deltas[initial:], false)
	}
}

func (f *FIFO[T]) takeOldestLocked() {
	f.dropBookmarksLocked()
	if f.queue.live > 0 {
		f.queue.take(f.taken)
		f.dropBookmarksLocked()
	}
}

// dropBookmarksLocked drops the bookmarks before the oldest object: consumers by key do
// not use them.
func (f *FIFO[T]) dropBookmarksLocked() {
	if n := f.queue.dropBookmarks(); n > 0 && !f.HasSynced() {
		f.initial -= n
		f.checkSyncedLocked()
	}
}

func (f *FIFO[T]) takeAllLocked() {
	f.queue.compact()
	f.queue, f.taken = f.taken, f.queue
}

// takenInitial returns how many of the first deltas in taken belong to the initial
// population: those up to the end of the first list or, before the list has ended, all of
// them.
func (f *FIFO[T]) takenInitial() int {
	if f.HasSynced() {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.taken.links)
	for f.populated && n > 0 && !f.taken.links[n-1].initial {
		n--
	}
	return n
}

// consume waits for its turn and for something to take, takes it and lends it to process.
// Only the holder of the turn changes taken, so reading it here needs no lock.
func (f *FIFO[T]) consume(ctx context.Context, takeLocked func(), process func(Deltas[T]) error) error {
	// Close does not end this wait: the remaining deltas can still be taken.
	if err := turn(ctx, f.consuming, nil); err != nil {
		return err
	}
	defer func() { <-f.consuming }()
	if err := f.await(ctx, takeLocked); err != nil {
		return err
	}
	return f.lend(process)
}

// lend calls process with the deltas that were taken, and then drops them.
func (f *FIFO[T]) lend(process func(Deltas[T]) error) error {
	defer f.release()
	return process(f.taken.deltas)
}

// await takes from the queue as soon as it is not empty.
func (f *FIFO[T]) await(ctx context.Context, takeLocked func()) error {
	for {
		f.mu.Lock()
		if f.queue.live > 0 {
			takeLocked()
			if f.taken.live > 0 {
				signal(f.freed)
				f.mu.Unlock()
				return nil
			}
			signal(f.freed)
		}
		closed, filled := f.isClosedLocked(), waitable(&f.filled)
		f.mu.Unlock()
		if closed {
			return ErrClosed
		}
		select {
		case <-filled:
		case <-f.closed:
		case <-ctx.Done():
			return fmt.Errorf("delta queue: %w", context.Cause(ctx))
		}
	}
}

// processed counts the initial deltas in taken as processed.
func (f *FIFO[T]) processed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processedLocked()
}

func (f *FIFO[T]) processedLocked() {
	if f.HasSynced() {
		return
	}
	for at := range f.taken.links {
		if f.taken.links[at].initial {
			f.taken.links[at].initial = false
			f.initial--
		}
	}
	f.checkSyncedLocked()
}

// release empties taken, whose deltas were applied or given up.
func (f *FIFO[T]) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processedLocked()
	f.taken.reset()
}
