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

// read returns the counts up to now.
func (n *counters) read() Stats {
	return Stats{
		Lists:       n.lists.Load(),
		Watches:     n.watches.Load(),
		OpenWatches: n.open.Load(),
		Gets:        n.gets.Load(),
		Discoveries: n.discoveries.Load(),
		Sent:        n.sent.Load(),
	}
}

// add adds other counts.
func (s *Stats) add(other Stats) {
	s.Lists += other.Lists
	s.Watches += other.Watches
	s.OpenWatches += other.OpenWatches
	s.Gets += other.Gets
	s.Discoveries += other.Discoveries
	s.Sent += other.Sent
}
