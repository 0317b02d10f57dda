// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import "time"

// Status is the state of a [Member].
type Status struct {
	Group, Holder string
	// Slot is the own slot, and Owned whether this process has one.
	Slot  int
	Owned bool
	// Renewed is whether the Lease is held for certain, see [Member.Renewed].
	Renewed bool
	// Age is the time since the last acknowledged renewal was sent, 0 without a Lease.
	Age time.Duration
	// Bound is how far the bound of versions is ahead of the group cluster's time.
	Bound time.Duration
	// Skew is how far the group cluster's clock is ahead of the one of this machine. It has no
	// effect on versions.
	Skew  time.Duration
	Peers []Peer
	// Err is why the last round failed, and Since when that began.
	Err   error
	Since time.Time
	// Ignored has an error for each Lease of the group that no member can have written.
	Ignored []error
}

// Status returns the present state.
func (m *Member) Status() Status {
	s := Status{Group: m.Group, Holder: m.holder, Peers: m.Peers(), Renewed: m.Renewed()}
	m.mu.Lock()
	s.Err, s.Since, s.Ignored = m.err, m.since, m.ignored
	m.mu.Unlock()
	sent := m.renewed.Load()
	now, known := m.clock.now()
	if known {
		s.Skew = time.Until(now)
	}
	if sent != 0 {
		term := m.Term()
		s.Slot, s.Owned, s.Age = term.Slot(), true, m.clock.elapsed()-time.Duration(sent)
		s.Bound = time.UnixMicro(int64(term.Bound())).Sub(now)
	}
	return s
}

// Warning returns what the responses below /fleet warn of, "" while the Lease is renewed. Everybody
// with access reads it, so it does not have the cause.
func (m *Member) Warning() string {
	if m.Renewed() {
		return ""
	}
	return "the Lease of this replica is not renewed: it does not know the other replicas of its group, and its " +
		"versions of /fleet grow by one per change"
}
