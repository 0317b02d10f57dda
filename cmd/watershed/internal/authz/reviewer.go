// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica"
)

// Decision is the answer of a cluster to the question whether a user may make a request.
type Decision struct {
	Allowed bool
	// Reason is the text that the cluster gives for the decision, often "".
	Reason string
}

// Options configures a [Reviewer]. A nil pointer and zero values mean the defaults.
type Options struct {
	// AllowTTL and DenyTTL are how long a decision is used, from the time when its review was
	// sent. Default: 10 s.
	AllowTTL, DenyTTL time.Duration
	// Deadline limits a review, its retries included. Default: 10 s. A caller that cannot
	// wait for that long passes a context with a deadline; the review then goes on, and its
	// decision is cached for the next caller.
	Deadline time.Duration
	// Concurrency is how many reviews are sent to the cluster at the same time. Default: 64.
	Concurrency int
	// Queue is how many reviews wait besides these. Further ones are refused with 429.
	// Default: 1024.
	Queue int
	// Entries is how many decisions are cached. Default: 8192.
	Entries int
	// Bytes limits the memory of the cached decisions. Default: 4 MiB.
	Bytes int
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	d.AllowTTL = cmp.Or(d.AllowTTL, 10*time.Second)
	d.DenyTTL = cmp.Or(d.DenyTTL, 10*time.Second)
	d.Deadline = cmp.Or(d.Deadline, 10*time.Second)
	d.Concurrency = cmp.Or(d.Concurrency, 64)
	d.Queue = cmp.Or(d.Queue, 1024)
	d.Entries = cmp.Or(d.Entries, 8192)
	d.Bytes = cmp.Or(d.Bytes, 4<<20)
	return d
}

// Reviewer sends access reviews to one cluster. All methods are safe for concurrent use.
//
// The cache has at most [Options.Entries] decisions of about 320 bytes and their reasons, and
// at most [Options.Bytes] of them. At most Concurrency + Queue reviews run or wait, with a
// goroutine each.
type Reviewer struct {
	opts   Options
	client *client
	slots  chan struct{}

	life context.Context // ends with Close
	end  context.CancelFunc
	runs sync.WaitGroup

	mu     sync.Mutex
	cache  cache
	closed bool
	// flights has the last review of each key that runs or waits.
	flights map[reviewKey]*flight
	pending int // reviews that run or wait
	// sequence is the number of the last review, flushed that of the last one before Flush.
	sequence, flushed uint64
	stats             ReviewerStats
}

// flight is a review that runs or waits.
type flight struct {
	sequence uint64
	started  time.Time
	done     chan struct{}
	// decision and err are set before done is closed.
	decision Decision
	err      error
}

// ReviewerStats counts the work of a [Reviewer] since it was made.
type ReviewerStats struct {
	// Hits counts decisions from the cache, Joined the callers that waited for the review of
	// another caller, and Reviews the reviews that were sent.
	Hits, Joined, Reviews uint64
	// Failures counts reviews without a decision, Refused those for which the queue had no
	// room.
	Failures, Refused uint64
	// Entries and Bytes are the present size of the cache.
	Entries, Bytes int
}

// NewReviewer returns a reviewer for users of a cluster. The credentials of c need the right
// to create subjectaccessreviews.authorization.k8s.io.
func NewReviewer(c *kube.Cluster, opts *Options) *Reviewer {
	return newReviewer(newClient(c, false), opts)
}

// NewSelfReviewer returns a reviewer that decides for the user that c's credentials belong
// to, whatever user is passed to its methods. Every user may review their own access.
func NewSelfReviewer(c *kube.Cluster, opts *Options) *Reviewer {
	return newReviewer(newClient(c, true), opts)
}

func newReviewer(c *client, opts *Options) *Reviewer {
	o := opts.withDefaults()
	r := &Reviewer{
		opts:    o,
		client:  c,
		slots:   make(chan struct{}, o.Concurrency),
		cache:   newCache(o.Entries, o.Bytes),
		flights: map[reviewKey]*flight{},
	}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// Authorize returns whether a user may make a request. The error wraps a status: 503 if the
// cluster does not decide, 429 if too many reviews are waiting. The user must not be modified
// later, because the review can outlast the call.
func (r *Reviewer) Authorize(
	ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes,
) (Decision, error) {
	return r.authorize(ctx, user, &a, time.Time{})
}

// authorize is Authorize. It does not use the result of a review that was sent before since,
// if that allowed the request.
func (r *Reviewer) authorize(
	ctx context.Context, user *authenticationv1.UserInfo, a *replica.Attributes, since time.Time,
) (Decision, error) {
	if r.client.self {
		user = nil
	}
	key := keyOf(user, a)
	r.mu.Lock()
	if e, ok := r.cache.get(key, time.Now()); ok && (!e.decision.Allowed || !e.sent.Before(since)) {
		r.stats.Hits++
		r.mu.Unlock()
		return e.decision, nil
	}
	f := r.flights[key]
	if f != nil && f.sequence > r.flushed && !f.started.Before(since) {
		r.stats.Joined++
		r.mu.Unlock()
		return r.wait(ctx, f)
	}
	f, err := r.startLocked(key, user, a)
	r.mu.Unlock()
	if err != nil {
		return Decision{}, err
	}
	return r.wait(ctx, f)
}

// Fresh returns the decision of a review that starts after the call. That decision replaces
// the one in the cache.
func (r *Reviewer) Fresh(ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes) (Decision, error) {
	if r.client.self {
		user = nil
	}
	key := keyOf(user, &a)
	r.mu.Lock()
	f, err := r.startLocked(key, user, &a)
	r.mu.Unlock()
	if err != nil {
		return Decision{}, err
	}
	return r.wait(ctx, f)
}

// wait waits for a review.
func (r *Reviewer) wait(ctx context.Context, f *flight) (Decision, error) {
	select {
	case <-f.done:
		return f.decision, f.err
	case <-ctx.Done():
		return Decision{}, r.client.failed(apierrors.NewServiceUnavailable(noAnswer), context.Cause(ctx))
	}
}

// startLocked starts a review.
func (r *Reviewer) startLocked(key reviewKey, user *authenticationv1.UserInfo, a *replica.Attributes) (*flight, error) {
	if r.closed {
		return nil, r.client.failed(apierrors.NewServiceUnavailable(noAnswer), errClosed)
	}
	if r.pending >= r.opts.Concurrency+r.opts.Queue {
		r.stats.Refused++
		return nil, r.client.failed(apierrors.NewTooManyRequests(busy, 1), errQueue)
	}
	r.pending++
	r.sequence++
	f := &flight{sequence: r.sequence, started: time.Now(), done: make(chan struct{})}
	r.flights[key] = f
	request := *a
	r.runs.Go(func() { r.run(f, key, user, &request) })
	return f, nil
}

var (
	errClosed = errors.New("the connection to the cluster was replaced")
	errQueue  = errors.New("the queue is full")
)

// run makes a review and stores its decision.
func (r *Reviewer) run(f *flight, key reviewKey, user *authenticationv1.UserInfo, a *replica.Attributes) {
	ctx, cancel := context.WithTimeout(r.life, r.opts.Deadline)
	defer cancel()
	var sent time.Time
	select {
	case r.slots <- struct{}{}:
		sent = time.Now()
		f.decision, f.err = r.client.review(ctx, user, a)
		<-r.slots
	case <-ctx.Done():
		f.err = r.client.failed(apierrors.NewServiceUnavailable(noAnswer), ctx.Err())
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(f.done)
	r.pending--
	if r.flights[key] == f {
		delete(r.flights, key)
	}
	if !sent.IsZero() {
		r.stats.Reviews++
	}
	if f.err != nil {
		r.stats.Failures++
		return
	}
	if f.sequence > r.flushed {
		ttl := r.opts.DenyTTL
		if f.decision.Allowed {
			ttl = r.opts.AllowTTL
		}
		r.cache.put(key, entry{decision: f.decision, sequence: f.sequence, sent: sent, ttl: ttl}, time.Now())
	}
}

// Flush drops all cached decisions. The decision of a review that is under way reaches the
// callers that wait for it already, and no others.
func (r *Reviewer) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.Clear()
	r.flushed = r.sequence
}

// Expire drops the decisions that are too old to be used. The owner calls it from time to
// time, so that the cache of an idle cluster does not stay full.
func (r *Reviewer) Expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.expire(time.Now())
}

// Stats returns the counters.
func (r *Reviewer) Stats() ReviewerStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Entries, s.Bytes = r.cache.Len(), r.cache.Bytes()
	return s
}

// Close drops the cached decisions, ends the reviews that are under way and waits for them.
// Later calls get 503.
func (r *Reviewer) Close() {
	r.mu.Lock()
	r.closed, r.flushed = true, r.sequence
	r.cache.Clear()
	r.mu.Unlock()
	r.end()
	r.runs.Wait()
}
