// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

// Stats are the present state of a [Server] and its counts since its creation.
type Stats struct {
	// Connections is how many connections are open, and Addresses from how many addresses.
	Connections, Addresses int
	// Refused counts the connections that were refused because too many were open, and Displaced
	// those that were closed in favour of others before a caller was authenticated.
	Refused, Displaced uint64
	// Requests is how many requests are being served, watches included.
	Requests int
}

// Stats returns the present state and the counts.
func (s *Server) Stats() Stats {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	return Stats{
		Connections: s.listener.open, Addresses: len(s.listener.addresses),
		Refused: s.listener.refused, Displaced: s.listener.displaced, Requests: int(s.requests.Load()),
	}
}
