// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package overload

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// message is the text of kube-apiserver's 429.
const message = "Too many requests, please try again later."

// leastTime is how long every list may hold its units.
const leastTime = time.Second

// Limiter admits requests. All methods are safe for concurrent use. One mutex guards it,
// which is held for less than a microsecond unless users are waiting; a release then
// inspects at most each user that waits.
type Limiter struct {
	opts Options

	mu       sync.Mutex
	free     int // units that no request holds
	requests int // requests that hold units
	waiting  int
	watches  int
	places   int // those that the watches take
	slow     int // requests that have ceased to hold units because their clients are slow
	accounts map[string]*account
	// turns has the accounts (*account) with waiting requests. The first is next.
	turns    list.List
	admitted uint64
	rejected Rejections
}

// New returns a limiter. A nil opts means the defaults.
func New(opts *Options) *Limiter {
	l := &Limiter{opts: opts.withDefaults(), accounts: map[string]*account{}}
	l.free = l.opts.Units
	return l
}

// Admit waits until the request of a user may be served. The caller calls done when the
// response is complete; calls after the first do nothing. The error is a status of the
// Kubernetes API with code 429.
func (l *Limiter) Admit(ctx context.Context, user string, cost Cost) (done func(), err error) {
	l.mu.Lock()
	r, ok := l.admitLocked(l.accountLocked(user), cost)
	l.mu.Unlock()
	if !ok || r.ready != nil && !l.wait(ctx, r) {
		return nil, tooMany(1, 2)
	}
	if cost <= Get {
		return func() { l.release(r) }, nil
	}
	timer := time.AfterFunc(max(leastTime, time.Duration(cost)*l.opts.UnitTime), func() { l.slowDown(r) })
	return func() {
		timer.Stop()
		l.release(r)
	}, nil
}

// AdmitWatch waits until the watch of a user may start. Cost is that of its start: of a
// list if it begins with all objects, else of a GET. Places is how many watches it counts as,
// see [Places]: a user that has no other watch may have one that takes more than its limit. The caller calls done when
// the watch has ended. It can call started when the objects that the watch begins with are sent;
// otherwise the units of the start are released after [Options.WatchStart]. The error is a
// status of the Kubernetes API with code 429.
func (l *Limiter) AdmitWatch(
	ctx context.Context, user string, cost Cost, places int,
) (started, done func(), err error) {
	l.mu.Lock()
	a := l.accountLocked(user)
	places = max(places, 1)
	limit := min(l.opts.WatchesPerUser, l.opts.Watches-l.places)
	if a.places >= limit || a.places > 0 && a.places+places > limit {
		l.rejected.Watches++
		l.dropIdleLocked(a)
		l.mu.Unlock()
		return nil, nil, tooMany(5, 15)
	}
	a.places += places
	l.places += places
	l.watches++
	r, ok := l.admitLocked(a, cost)
	l.mu.Unlock()
	if !ok || r.ready != nil && !l.wait(ctx, r) {
		l.endWatch(a, places)
		return nil, nil, tooMany(1, 2)
	}
	timer := time.AfterFunc(l.opts.WatchStart, func() { l.release(r) })
	started = func() {
		timer.Stop()
		l.release(r)
	}
	return started, sync.OnceFunc(func() {
		started()
		l.endWatch(a, places)
	}), nil
}

// Stats returns the present state and the counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		InFlight: l.opts.Units - l.free, Requests: l.requests, Waiting: l.waiting, Watches: l.watches, Slow: l.slow,
		Users: len(l.accounts), Admitted: l.admitted, Rejected: l.rejected,
	}
}

// tooMany returns the 429. Retry-After is a random number of seconds between the limits,
// so that clients that are rejected together do not come back together.
func tooMany(least, most int) error {
	return apierrors.NewTooManyRequests(message, least+rand.IntN(most-least+1))
}

func (l *Limiter) accountLocked(user string) *account {
	name := accountName(user)
	a := l.accounts[name]
	if a == nil {
		a = &account{name: name}
		l.accounts[name] = a
	}
	return a
}

// dropIdleLocked deletes an account without work. The account may have been deleted
// already, and the user may have another one.
func (l *Limiter) dropIdleLocked(a *account) {
	if a.isIdle() && l.accounts[a.name] == a {
		delete(l.accounts, a.name)
	}
}

// admitLocked admits a request, or adds it to the queue of its user, or rejects it. The
// request has a ready channel if it has to wait.
func (l *Limiter) admitLocked(a *account, cost Cost) (r *request, ok bool) {
	r = &request{account: a, cost: min(max(int(cost), 1), l.opts.MaxCost)}
	if a.waiting.Len() == 0 && l.fitsLocked(a) {
		// Other users that wait are not overtaken: each of them holds as many units as are
		// free, or it would not wait.
		l.takeLocked(r)
		return r, true
	}
	if a.waiting.Len() >= l.opts.WaitingPerUser || l.waiting >= l.opts.Waiting && !l.displaceLocked(a) {
		l.rejected.Full++
		l.dropIdleLocked(a)
		return nil, false
	}
	r.ready = make(chan struct{})
	r.place = a.waiting.PushBack(r)
	l.waiting++
	if a.turn == nil {
		a.turn = l.turns.PushBack(a)
	}
	return r, true
}

// fitsLocked reports whether a user may have more units: it holds fewer than are free. The
// cost of the request does not matter. If it mattered, lists would wait for as long as
// cheaper requests take every free unit, or cheaper requests would have to wait for them.
func (l *Limiter) fitsLocked(a *account) bool { return a.units < l.free }

// takeLocked gives a request its units, or those that are free if they are fewer.
func (l *Limiter) takeLocked(r *request) {
	r.held = min(r.cost, l.free)
	r.account.units += r.held
	l.free -= r.held
	l.requests++
	l.admitted++
}

// displaceLocked removes the last request of the user with the longest queue, to make
// place for one of a. It reports false if the queue of a would become the longest.
func (l *Limiter) displaceLocked(a *account) bool {
	var longest *account
	for e := l.turns.Front(); e != nil; e = e.Next() {
		if b := e.Value.(*account); longest == nil || b.waiting.Len() > longest.waiting.Len() {
			longest = b
		}
	}
	if longest == nil || longest.waiting.Len() <= a.waiting.Len()+1 {
		return false
	}
	last := longest.waiting.Back().Value.(*request)
	l.leaveLocked(last)
	l.rejected.Full++
	close(last.ready)
	return true
}

// leaveLocked removes a request from the queue.
func (l *Limiter) leaveLocked(r *request) {
	a := r.account
	a.waiting.Remove(r.place)
	r.place = nil
	l.waiting--
	if a.waiting.Len() == 0 {
		l.turns.Remove(a.turn)
		a.turn = nil
	}
}

// wait waits until a request is admitted, and reports whether it was.
func (l *Limiter) wait(ctx context.Context, r *request) bool {
	timer := time.NewTimer(l.opts.MaxWait)
	defer timer.Stop()
	var late bool
	select {
	case <-r.ready:
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.held > 0: // even if its time was up in the same moment
		return true
	case r.place == nil: // displaced, and counted there
	case late:
		l.leaveLocked(r)
		l.rejected.Late++
	default:
		l.leaveLocked(r)
		l.rejected.Canceled++
	}
	l.dropIdleLocked(r.account)
	return false
}

// release returns the units of a request, if it still has them, and admits waiting
// requests.
func (l *Limiter) release(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.slow {
		r.slow = false
		r.account.slow--
		l.slow--
	}
	l.releaseLocked(r)
	l.dropIdleLocked(r.account)
}

func (l *Limiter) releaseLocked(r *request) {
	if r.held == 0 {
		return
	}
	r.account.units -= r.held
	l.free += r.held
	r.held = 0
	l.requests--
	l.dispatchLocked()
}

// slowDown returns the units of a request whose client is slow, unless there are too many
// such requests.
func (l *Limiter) slowDown(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.held == 0 || r.account.slow >= l.opts.Slow-l.slow {
		return
	}
	r.slow = true
	r.account.slow++
	l.slow++
	l.releaseLocked(r)
}

// dispatchLocked admits waiting requests, one of each user in turn, until no waiting user
// may have more units. A user that holds too many units loses its turn.
func (l *Limiter) dispatchLocked() {
	for skipped := 0; l.free > 0 && skipped < l.turns.Len(); {
		a := l.turns.Front().Value.(*account)
		l.turns.MoveToBack(a.turn)
		if !l.fitsLocked(a) {
			skipped++
			continue
		}
		skipped = 0
		r := a.waiting.Front().Value.(*request)
		l.leaveLocked(r)
		l.takeLocked(r)
		close(r.ready)
	}
}

func (l *Limiter) endWatch(a *account, places int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.places -= places
	l.places -= places
	l.watches--
	l.dropIdleLocked(a)
}
