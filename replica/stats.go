// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"cmp"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/histogram"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// Stats are the counts of a server since it was made, and its present state.
type Stats struct {
	// Requests counts finished requests. Their order has no meaning.
	Requests []RequestStats
	// Durations are those of finished requests that are not watches and do not stay open.
	Durations []DurationStats
	// Clusters are sorted by name. Only clusters that have had a request are in it. The
	// first one has no name: it is for requests below /fleet, and for those that address no
	// cluster.
	Clusters []ClusterStats
	// Bytes counts the bytes of responses, as far as clients have received them.
	Bytes ResponseBytes
	// Open is how many responses are being written. Blocked is how many of them have waited
	// for their client for more than a second, and BlockedFor the longest time.
	Open, Blocked int
	BlockedFor    time.Duration
	// Cut counts clients that were cut off because they did not read, and Expired the
	// watches that ended because their client was too slow for the history.
	Cut, Expired uint64
}

// RequestStats is how many requests had the same labels.
type RequestStats struct {
	RequestLabels
	Count uint64
}

// DurationStats has the durations of requests of a verb and a scope.
type DurationStats struct {
	Verb, Scope string
	Durations   histogram.Snapshot
}

// ClusterStats are the counts of one cluster.
type ClusterStats struct {
	Name string
	// Saved counts requests that were answered from the copy and that a client would
	// otherwise have sent to the cluster. A request below /fleet saves one for each cluster.
	Saved Savings
	// Passed counts requests that the cluster has answered.
	Passed uint64
	// Watches is how many watches are open.
	Watches int64
}

// ResponseBytes counts bytes by verb.
type ResponseBytes struct{ Get, List, Watch, Other uint64 }

// Stats returns the counts. It takes about 100 ns for each kind of request and each cluster.
func (s *Server) Stats() Stats {
	bytes := s.tracker.Bytes()
	load := s.tracker.Load()
	all := Stats{
		Clusters: []ClusterStats{s.all.traffic.stats("")},
		Bytes:    ResponseBytes{Get: bytes[respond.GetBytes], List: bytes[respond.ListBytes], Watch: bytes[respond.WatchBytes], Other: bytes[respond.OtherBytes]},
		Open:     s.tracker.Len(), Blocked: load.Blocked, BlockedFor: load.Longest, Cut: load.Cut, Expired: s.tally.expired.Load(),
	}
	for _, c := range s.present() {
		all.Clusters = append(all.Clusters, c.traffic.stats(c.member.Name()))
	}
	slices.SortFunc(all.Clusters, func(a, b ClusterStats) int { return cmp.Compare(a.Name, b.Name) })
	s.tally.mu.RLock()
	defer s.tally.mu.RUnlock()
	for l, n := range s.tally.requests {
		all.Requests = append(all.Requests, RequestStats{l, n.Load()})
	}
	for l, h := range s.tally.durations {
		all.Durations = append(all.Durations, DurationStats{l.verb, l.scope, h.Snapshot()})
	}
	return all
}

func (t *clusterTally) stats(name string) ClusterStats {
	return ClusterStats{Name: name, Saved: t.saved.load(), Passed: t.passed.Load(), Watches: t.watches.Load()}
}
