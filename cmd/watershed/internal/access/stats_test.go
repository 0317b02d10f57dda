// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import "github.com/watershed-project/watershed/cmd/watershed/internal/authz"

// Stats counts the work of access control for one cluster, since the connection to it was
// made.
type Stats struct {
	// Reviews are decisions about users, Self those about the owner.
	Reviews, Self authz.ReviewerStats
	// Local is nil unless RBAC of the cluster is evaluated here.
	Local *authz.LocalStats
}

// Stats returns the counts by the names of the clusters that have had a request.
func (g *guards) Stats() map[string]Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]Stats, len(g.members))
	for m, at := range g.members {
		is := Stats{Reviews: at.reviewer.Stats(), Self: at.self.Stats()}
		if at.local != nil {
			local := at.local.Stats()
			is.Local = &local
		}
		all[m.Name()] = is
	}
	return all
}
