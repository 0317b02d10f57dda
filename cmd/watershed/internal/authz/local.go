// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"context"
	"errors"
	"log/slog"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/rbac"
	"github.com/watershed-project/watershed/replica"
)

// LocalOptions configures a [Local]. A nil pointer and zero values mean the defaults.
type LocalOptions struct {
	// Cluster is the name of the cluster in the log.
	Cluster string
	// Fresh reports whether the policy follows the cluster: all four kinds have synced, and
	// the cluster has sent something for each within 90 s. Default: always.
	Fresh func() bool
	// Logger receives a line when the cluster is not decided locally any more. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Local decides with a copy of the RBAC objects of a cluster. All methods are safe for
// concurrent use.
type Local struct{}

// LocalStats counts the work of a [Local] since it was made.
type LocalStats struct {
	// Local and Reviewed are how many decisions were made here and by the cluster.
	Local, Reviewed uint64
	// Compared are local decisions that were compared with the cluster's, Skipped are those
	// that were not because too many comparisons were running.
	Compared, Skipped uint64
	// Disagreements are comparisons in which the cluster denied what was allowed here,
	// Transient are those of them that ended within 5 s.
	Disagreements, Transient uint64
	// Proven means that the probe has succeeded. Fallback is why the cluster decides
	// everything, or "".
	Proven   bool
	Fallback string
}

// NewLocal returns an authorizer that uses a policy and, for all that the policy does not
// decide, a reviewer, which the caller still owns.
func NewLocal(policy *rbac.Policy, reviewer *Reviewer, opts *LocalOptions) *Local { return &Local{} }

// Authorize returns whether a user may make a request.
func (l *Local) Authorize(ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes) (Decision, error) {
	return Decision{}, errors.ErrUnsupported
}

// Fresh is Authorize without the reviewer's cache.
func (l *Local) Fresh(ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes) (Decision, error) {
	return Decision{}, errors.ErrUnsupported
}

// Stats returns the counters.
func (l *Local) Stats() LocalStats { return LocalStats{} }

// Close ends the comparisons and waits for them. Decisions are left to the reviewer then.
func (l *Local) Close() {}
