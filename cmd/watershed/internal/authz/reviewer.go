// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"context"
	"errors"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

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
	// decision is there for the next caller.
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

// Reviewer sends access reviews to one cluster. All methods are safe for concurrent use.
type Reviewer struct{}

// ReviewerStats counts the work of a [Reviewer] since it was made.
type ReviewerStats struct {
	// Hits are decisions from the cache, Joined are callers that waited for the review of
	// another caller, and Reviews are reviews that were sent.
	Hits, Joined, Reviews uint64
	// Failures are reviews without a decision, Refused are those that the queue had no room for.
	Failures, Refused uint64
	// Entries and Bytes are the present size of the cache.
	Entries, Bytes int
}

// NewReviewer returns a reviewer for users of a cluster. The credentials of c need the right
// to create subjectaccessreviews.authorization.k8s.io.
func NewReviewer(c *kube.Cluster, opts *Options) *Reviewer { return &Reviewer{} }

// NewSelfReviewer returns a reviewer that decides for the user that c's credentials belong
// to, whatever user is passed to its methods. Every user may review their own access.
func NewSelfReviewer(c *kube.Cluster, opts *Options) *Reviewer { return &Reviewer{} }

// Authorize returns whether a user may make a request. The error wraps a status: 503 if the
// cluster does not decide, 429 if too many reviews are waiting.
func (r *Reviewer) Authorize(ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes) (Decision, error) {
	return Decision{}, errors.ErrUnsupported
}

// Fresh returns a decision of a review that starts after the call. It replaces the decision
// in the cache.
func (r *Reviewer) Fresh(ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes) (Decision, error) {
	return Decision{}, errors.ErrUnsupported
}

// Flush drops all cached decisions, and those of reviews that are under way.
func (r *Reviewer) Flush() {}

// Expire drops the decisions that are too old to be used. Its owner calls it from time to
// time, so that an idle cluster does not keep a full cache.
func (r *Reviewer) Expire() {}

// Stats returns the counters.
func (r *Reviewer) Stats() ReviewerStats { return ReviewerStats{} }

// Close ends the reviews that are under way and waits for them. Later calls get 503.
func (r *Reviewer) Close() {}
