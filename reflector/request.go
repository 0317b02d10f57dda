// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"sync"
)

// request is a list that a caller of [Reflector.Relist] has requested.
type request struct {
	// mu guards the fields below.
	mu sync.Mutex
	// list is set until Run has taken the request, and back if the list may be older than
	// the copy.
	list, back bool
	// interrupt ends the current session, nil if there is none.
	interrupt context.CancelFunc
}

// begin takes the request, if there is one, and returns the context of a session, which
// the next request ends. The caller calls end after the session.
func (q *request) begin(ctx context.Context) (session context.Context, list, back bool, end func()) {
	session, cancel := context.WithCancel(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	list, back = q.list, q.back
	q.list, q.back, q.interrupt = false, false, cancel
	return session, list, back, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.interrupt = nil
		cancel()
	}
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
	if q.interrupt != nil {
		q.interrupt()
	}
}

// obey plans a list that was requested.
func (r *Reflector[T]) obey(back bool) {
	r.intake.logger.Info("reading the state again on request", "rv", r.intake.version, "back", back)
	r.plan = plan{list: true, recent: true}
	// Before the first list there is nothing to go back from.
	r.intake.back = r.intake.back || back && r.intake.version != ""
}
