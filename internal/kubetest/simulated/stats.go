// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import "sync/atomic"

// Stats counts the requests and bytes of a cluster, or of a server, since it began.
type Stats struct {
	Lists       int64 // LIST requests, one for each page
	Watches     int64 // WATCH requests
	OpenWatches int64 // watches that are open now
	Gets        int64 // GETs of one object
	Discoveries int64 // discovery documents
	Sent        int64 // bytes of bodies, after compression
}

type counters struct {
	lists, watches, open, gets, discoveries, sent atomic.Int64
}

// Stats returns the counts up to now.
func (c *Cluster) Stats() Stats {
	n := &c.stats
	return Stats{
		Lists:       n.lists.Load(),
		Watches:     n.watches.Load(),
		OpenWatches: n.open.Load(),
		Gets:        n.gets.Load(),
		Discoveries: n.discoveries.Load(),
		Sent:        n.sent.Load(),
	}
}

// Stats returns the counts of all clusters together.
func (s *Server) Stats() Stats {
	var sum Stats
	for _, c := range s.clusters {
		n := c.Stats()
		sum.Lists += n.Lists
		sum.Watches += n.Watches
		sum.OpenWatches += n.OpenWatches
		sum.Gets += n.Gets
		sum.Discoveries += n.Discoveries
		sum.Sent += n.Sent
	}
	return sum
}
