// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import "time"

// Status is the state of a [Replica].
type Status struct {
	Group, Holder string
	// Slot is the own slot, and Owned whether this process has one.
	Slot  int
	Owned bool
	// Renewed is whether the Lease is held for certain, see [Replica.Renewed].
	Renewed bool
	// Age is the time since the last acknowledged renewal was sent, 0 without a Lease.
	Age time.Duration
	// Bound is how far the bound of versions is ahead of the group cluster's time.
	Bound time.Duration
	// Ahead is how far the newest version that was shown is ahead of the group cluster's time, 0 if it
	// is not. Versions follow the time, so it is more than some seconds only if they began at a late
	// bound, a client has presented a late version, or the clock of the group cluster was set back.
	Ahead time.Duration
	// Skew is how far the group cluster's clock is ahead of the one of this machine. It has no
	// effect on versions.
	Skew  time.Duration
	Peers []Peer
	// Err is why the last round failed, and Since when that began.
	Err   error
	Since time.Time
	// Ignored has an error for each Lease of the group that no replica can have written.
	Ignored []error
}

// Status returns the present state.
func (r *Replica) Status() Status {
	s := Status{Group: r.Group, Holder: r.holder, Peers: r.Peers(), Renewed: r.Renewed()}
	r.mu.Lock()
	s.Err, s.Since, s.Ignored = r.err, r.since, r.ignored
	r.mu.Unlock()
	sent := r.renewed.Load()
	now, known := r.clock.now()
	if known {
		s.Skew = time.Until(now)
	}
	if sent != 0 {
		term := r.Term()
		s.Slot, s.Owned, s.Age = term.Slot(), true, r.clock.elapsed()-time.Duration(sent)
		s.Bound = time.UnixMicro(int64(term.Bound())).Sub(now)
		s.Ahead = max(0, time.UnixMicro(int64(term.Shown())).Sub(now))
	}
	return s
}

// Warning returns what the responses below /fleet warn of, "" while the Lease is renewed. Everybody
// with access reads it, so it does not have the cause.
func (r *Replica) Warning() string {
	if r.Renewed() {
		return ""
	}
	return "the Lease of this replica is not renewed: it does not know the other replicas of its group, and its " +
		"versions of /fleet grow by one per change"
}
