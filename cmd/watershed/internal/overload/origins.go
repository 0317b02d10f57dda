// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package overload

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Purpose is why the server sends a request to a cluster. Each purpose has its own bound,
// so that slow reads do not delay the reviews that decide about other requests.
type Purpose uint8

const (
	// Read is a read that is passed on to the cluster.
	Read Purpose = iota
	// Review is a TokenReview, a SubjectAccessReview or a SelfSubjectAccessReview.
	Review
)

// OriginOptions configure [Origins]. The zero value, and nil, are the defaults. As with a
// [Limiter], one user alone gets about half of Reads and Reviews.
type OriginOptions struct {
	// Reads limits how many reads are passed on to one cluster at the same time.
	// Default 32.
	Reads int
	// Reviews limits how many reviews one cluster makes for this server at the same time.
	// Default 64.
	Reviews int
	// Waiting limits how many requests wait for one cluster and purpose, and
	// WaitingPerUser how many of them are of one user. Defaults 256 and 64.
	Waiting, WaitingPerUser int
	// MaxWait limits how long a request waits. Default 5 s.
	MaxWait time.Duration
}

// Origins bounds the requests that the server sends to each cluster in the name of users.
// Mirrors are not counted: a fleet has bounds of its own for them. A cluster takes memory
// only while requests to it are in flight or waiting: about 600 bytes with
// one request. All methods are safe for concurrent use.
type Origins struct {
	opts OriginOptions

	mu      sync.Mutex
	origins map[originKey]*origin
	// former are the counts of origins that have been deleted.
	former OriginStats
}

type originKey struct {
	cluster string
	purpose Purpose
}

// origin is the limiter of one cluster and purpose. uses counts the requests that wait or
// are in flight.
type origin struct {
	limiter *Limiter
	uses    int
}

// OriginStats are the present state of [Origins] and its counts since its creation.
type OriginStats struct {
	// InFlight and Waiting count requests to all clusters.
	InFlight, Waiting int
	// Admitted and Rejected count requests.
	Admitted, Rejected uint64
}

// NewOrigins returns bounds for any number of clusters. A nil opts means the defaults.
func NewOrigins(opts *OriginOptions) *Origins {
	o := &Origins{origins: map[originKey]*origin{}}
	if opts != nil {
		o.opts = *opts
	}
	return o
}

// Admit waits until a request for a user may be sent to a cluster. Cluster is its identity:
// a cluster that takes the name of another one has another identity. The caller calls done
// when it has read the response. The error is a status of the Kubernetes API with code 429.
func (o *Origins) Admit(ctx context.Context, cluster string, purpose Purpose, user string) (done func(), err error) {
	key := originKey{cluster, purpose}
	l := o.enter(key)
	release, err := l.Admit(ctx, user, 1)
	if err != nil {
		o.leave(key)
		return nil, err
	}
	return sync.OnceFunc(func() {
		release()
		o.leave(key)
	}), nil
}

// Stats returns the present state and the counts.
func (o *Origins) Stats() OriginStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	sum := o.former
	for _, one := range o.origins {
		sum.add(one.limiter.Stats())
	}
	return sum
}

func (s *OriginStats) add(l Stats) {
	s.InFlight += l.Requests
	s.Waiting += l.Waiting
	s.Admitted += l.Admitted
	s.Rejected += l.Rejected.Total()
}

// enter returns the limiter of a cluster, and keeps it until leave is called.
func (o *Origins) enter(key originKey) *Limiter {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.origins[key]
	if one == nil {
		one = &origin{limiter: New(o.limits(key.purpose))}
		o.origins[key] = one
	}
	one.uses++
	return one.limiter
}

// limits returns the options of one cluster's limiter.
func (o *Origins) limits(purpose Purpose) *Options {
	units := cmp.Or(o.opts.Reads, 32)
	if purpose == Review {
		units = cmp.Or(o.opts.Reviews, 64)
	}
	return &Options{
		Units: units, Waiting: cmp.Or(o.opts.Waiting, 256), WaitingPerUser: cmp.Or(o.opts.WaitingPerUser, 64),
		MaxWait: cmp.Or(o.opts.MaxWait, 5*time.Second),
	}
}

// leave deletes the limiter of a cluster if no request uses it.
func (o *Origins) leave(key originKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.origins[key]
	if one.uses--; one.uses == 0 {
		o.former.add(one.limiter.Stats())
		delete(o.origins, key)
	}
}
