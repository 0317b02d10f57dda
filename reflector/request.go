// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// request is a list that a caller of [Reflector.Relist] has requested. It also has the
// context of the work that the request interrupts.
type request struct {
	// mu guards the fields below.
	mu sync.Mutex
	// list is set until Run has taken the request, and back if the list may be older than
	// the copy.
	list, back bool
	// cancel ends the current work. It is nil if there is none.
	cancel context.CancelCauseFunc
	// session is set if the current work is a session, which a request ends.
	session bool
	// closed is set when the queue is closed.
	closed bool
	// retry is set when the cause of failures may be gone, until the next session begins. wake
	// ends the wait after a failure, and is nil outside such a wait.
	retry bool
	wake  context.CancelFunc
}

// begin returns a context for the next work, which ends when the queue is closed. The
// caller calls end after the work.
func (q *request) begin(ctx context.Context, session bool) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancel, q.session = cancel, session
	q.retry = q.retry && !session
	if q.closed {
		cancel(nil)
	}
	return ctx, cancel
}

// end ends the current work.
func (q *request) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancel(nil)
	q.cancel, q.session = nil, false
}

// close ends all work, until reopen is called.
func (q *request) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.cancel != nil {
		q.cancel(nil)
	}
}

// reopen allows work again.
func (q *request) reopen() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = false
}

// isClosed reports whether close was called.
func (q *request) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// take takes the request, if there is one.
func (q *request) take() (list, back bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list, back = q.list, q.back
	q.list, q.back = false, false
	return list, back
}

// pending reports whether Run has not taken a request yet.
func (q *request) pending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.list
}

// Relist makes Run read the most recent state of the source again, and returns at once.
// It ends the current list or watch. The consumer of the queue receives the state as that
// of any list, so its readers see the differences as ordinary changes. A reflector that
// waits after a failure lists when the wait is over, and one that is parked when the
// source has the resource again. [Status.Lists] counts the list when it is complete.
func (r *Reflector[T]) Relist() { r.ask(false) }

// RelistBack is Relist for a caller that knows that the source has gone back to an older
// version, although its current version is not older than the copy's: etcd was restored
// from a backup, and has advanced since. Objects of the list replace newer ones.
func (r *Reflector[T]) RelistBack() { r.ask(true) }

func (r *Reflector[T]) ask(back bool) {
	q := &r.request
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list, q.back = true, q.back || back
	if q.session {
		q.cancel(nil)
	}
}

// obey plans a list that was requested.
func (r *Reflector[T]) obey(back bool) {
	r.intake.logger.Info("reading the state again on request", "rv", r.intake.version, "back", back)
	r.plan = plan{list: true, recent: true, cause: Requested}
	// Before the first list there is nothing to go back from.
	r.intake.back = r.intake.back || back && r.intake.version != ""
}

// Retry ends the wait after a failure, and the next failure counts as the first. It is for a
// caller that has corrected the cause, such as credentials. If a list or watch is being opened
// and fails, the reflector does not wait after the failure. Retry does not end a watch that is open.
func (r *Reflector[T]) Retry() {
	q := &r.request
	q.mu.Lock()
	defer q.mu.Unlock()
	q.retry = true
	if q.wake != nil {
		q.wake()
	}
}

// rest waits after a failure, until Retry is called.
func (r *Reflector[T]) rest(ctx context.Context, wait time.Duration) error {
	short, wake := context.WithCancel(ctx)
	defer wake()
	q := &r.request
	q.mu.Lock()
	q.wake = wake
	if q.retry {
		wake()
	}
	q.mu.Unlock()
	_ = timer.Sleep(short, wait) // Retry has ended it, or ctx
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wake = nil; q.retry {
		r.backoff.reset()
	}
	return context.Cause(ctx)
}
