// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/rbac"
	"github.com/watershed-project/watershed/replica"
)

const (
	nodesGroup = "system:nodes"
	// plainExtra is the prefix of the extra values that kube-apiserver itself adds. Authorizers
	// do not read these. Others can narrow a user's rights, such as the scopes of OpenShift.
	plainExtra = "authentication.kubernetes.io/"
	// settling is how long the cluster's own authorizer may use RBAC objects that the copy has
	// newer versions of. A review that was sent earlier than that after a change is not cached
	// for requests that the copy denies.
	settling = time.Second
)

// Local decides with a copy of the RBAC objects of a cluster. All methods are safe for
// concurrent use.
//
// A request that the copy allows is allowed without a review. All others are reviewed: what
// the copy denies, because a cluster can have authorizers besides RBAC, users in group
// system:nodes, users with extra values that kube-apiserver does not add itself, and every
// request while the copy does not follow the cluster.
//
// An authorizer that denies a request before RBAC sees it cannot be found in the RBAC objects.
// Two measures make sure that the cluster does not have one:
//
// The probe comes first. Until it has succeeded, every request is reviewed. For a random user
// name in group system:authenticated it reviews a random resource and the paths /version, /api
// and /healthz. The decisions must be those of the copy, the random resource must be denied,
// and an allowed path must have a reason that begins with "RBAC:". Otherwise another authorizer
// decides before RBAC. A review shows neither which authorizers a cluster has nor one
// that concerns certain users or resources only. If the cluster does not allow any of these
// paths, there is no reason to check either.
//
// Then decisions are compared with those of the cluster in the background: the first of each
// user, verb and resource, and about 1 % of the others, at most one per second. If the cluster
// denies what the copy allows, and that does not change within 5 s, or if the reason shows
// another authorizer, then all further requests are reviewed, until the owner makes a new
// Local.
//
// It costs the maps of at most 16,384 kinds of requests, about 20 bytes each, and at most 8
// comparisons at a time.
type Local struct {
	opts       LocalOptions
	policy     *rbac.Policy
	reviewer   *Reviewer
	comparison *comparison
	sampler    *sampler

	local, reviewed, beyond atomic.Uint64
}

// NewLocal returns an authorizer that uses a policy and, for all that the policy does not
// decide, a reviewer. The caller owns the reviewer and closes it after the Local.
func NewLocal(policy *rbac.Policy, reviewer *Reviewer, opts *LocalOptions) *Local {
	l := &Local{opts: opts.withDefaults(), policy: policy, reviewer: reviewer, sampler: newSampler()}
	l.comparison = newComparison(&l.opts, l.allows, reviewer.Fresh)
	return l
}

// Authorize returns whether a user may make a request. The error is that of
// [Reviewer.Authorize].
func (l *Local) Authorize(
	ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes,
) (Decision, error) {
	return l.decide(user, &a, func() (Decision, error) {
		return l.reviewer.authorize(ctx, user, &a, l.policy.Changed().Add(settling))
	})
}

// Fresh is Authorize without the reviewer's cache.
func (l *Local) Fresh(ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes) (Decision, error) {
	return l.decide(user, &a, func() (Decision, error) { return l.reviewer.Fresh(ctx, user, a) })
}

// decide returns the decision of the copy if it allows the request, or else that of a review.
func (l *Local) decide(
	user *authenticationv1.UserInfo, a *replica.Attributes, review func() (Decision, error),
) (Decision, error) {
	usable := rbacDecides(user) && l.opts.Fresh() && l.proven()
	if usable {
		if allowed, reason := l.allows(user, a); allowed {
			l.local.Add(1)
			if kind := l.sampler.kindOf(user.Username, a); l.sampler.selects(kind, time.Now()) {
				if !l.comparison.start(user, a, func() { l.sampler.forget(kind) }) {
					l.sampler.forget(kind)
				}
			}
			return Decision{Allowed: true, Reason: reason}, nil
		}
	}
	l.reviewed.Add(1)
	d, err := review()
	if usable && err == nil && d.Allowed {
		l.beyond.Add(1)
	}
	return d, err
}

// rbacDecides reports whether RBAC alone decides what a user may do, if it allows that.
func rbacDecides(user *authenticationv1.UserInfo) bool {
	if slices.Contains(user.Groups, nodesGroup) {
		return false
	}
	for key := range user.Extra {
		if !strings.HasPrefix(key, plainExtra) {
			return false
		}
	}
	return true
}

// allows returns the decision of kube-apiserver with the authorizers that it always has: the
// group system:masters and RBAC.
func (l *Local) allows(user *authenticationv1.UserInfo, a *replica.Attributes) (bool, string) {
	if slices.Contains(user.Groups, mastersGroup) {
		return true, ""
	}
	return l.policy.Authorize(user, *a)
}

// proven reports whether the copy may decide. It starts the probe if that has not succeeded
// yet.
func (l *Local) proven() bool {
	switch l.comparison.trust() {
	case trusted:
		return true
	case unproven:
		l.comparison.probe()
	}
	return false
}

// Stats returns the counters.
func (l *Local) Stats() LocalStats {
	s := l.comparison.stats()
	s.Local, s.Reviewed, s.Beyond = l.local.Load(), l.reviewed.Load(), l.beyond.Load()
	return s
}

// Close ends the probe and the comparisons and waits for them. Later requests are reviewed.
func (l *Local) Close() { l.comparison.close() }
