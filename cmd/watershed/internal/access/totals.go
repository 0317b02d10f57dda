// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/cmd/watershed/internal/authz"
)

// Totals counts the work of access control for all clusters together, also for those that
// have left.
type Totals struct {
	Authentications, Authorizations Outcomes
	// Tokens counts checks of tokens, and Reviews the decisions of clusters.
	Tokens  authn.Stats
	Reviews authz.ReviewerStats
	// LocalDecisions counts decisions that were made here, and LocalReviews those of the same
	// clusters that were not. Disagreements counts local decisions that a cluster has
	// contradicted.
	LocalDecisions, LocalReviews, Disagreements uint64
}

// add adds the counts of a guard.
func (t *Totals) add(g *guard) {
	tokens := g.authn.Stats()
	t.Tokens.Hits += tokens.Hits
	t.Tokens.Checks += tokens.Checks
	t.Tokens.Limited += tokens.Limited
	for _, r := range []*authz.Reviewer{g.reviewer, g.self} {
		s := r.Stats()
		t.Reviews.Hits += s.Hits
		t.Reviews.Joined += s.Joined
		t.Reviews.Reviews += s.Reviews
		t.Reviews.Failures += s.Failures
		t.Reviews.Refused += s.Refused
		t.Reviews.Entries += s.Entries
		t.Reviews.Bytes += s.Bytes
	}
	if g.local != nil {
		s := g.local.Stats()
		t.LocalDecisions += s.Local
		t.LocalReviews += s.Reviewed
		t.Disagreements += s.Disagreements
	}
}
