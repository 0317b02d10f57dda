// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import (
	"time"

	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/warning"
)

// Status is the state of a [Replica].
type Status struct {
	document.Membership
	// Err is why the last round failed, and Since when that began.
	Err   error
	Since time.Time
	// Ignored has an error for each Lease of the group that no replica can have written.
	Ignored []error
}

// Status returns the present state.
func (r *Replica) Status() Status {
	s := Status{Membership: document.Membership{
		Group: r.Group, Holder: r.holder, Renewed: r.Renewed(), Peers: []document.Peer{},
	}}
	for _, p := range r.Peers() {
		s.Peers = append(s.Peers, document.Peer{Holder: warning.Shorten(p.Holder, warning.MaxName), Slot: p.Slot})
	}
	r.mu.Lock()
	s.Err, s.Since, s.Ignored = r.err, r.since, r.ignored
	r.mu.Unlock()
	now, known := r.clock.now()
	if known {
		s.ClockSkew = time.Until(now).Seconds()
	}
	if sent := r.renewed.Load(); sent != 0 {
		term := r.Term()
		s.Slot, s.Owned, s.Age = term.Slot(), true, (r.clock.elapsed() - time.Duration(sent)).Seconds()
		s.Bound = time.UnixMicro(int64(term.Bound())).Sub(now).Seconds()
		s.Ahead = max(0, time.UnixMicro(int64(term.Shown())).Sub(now).Seconds())
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
