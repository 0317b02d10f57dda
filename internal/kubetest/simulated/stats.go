// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import "sync/atomic"

// Stats counts what a cluster, or a server, has done since it began.
type Stats struct {
	Lists       int64 // LISTs, each page being one
	Watches     int64 // WATCHes that were asked for
	OpenWatches int64 // that are under way now
	Gets        int64 // GETs of one object
	Discoveries int64 // discovery documents
	Sent        int64 // bytes of bodies, compressed where they were
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
