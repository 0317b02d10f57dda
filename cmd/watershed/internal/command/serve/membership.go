// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"fmt"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica"
)

// membershipOf returns the function that describes this process in its group, for the status.
func membershipOf(r *group.Replica) func() *replica.Membership {
	return func() *replica.Membership {
		s := r.Status()
		is := &replica.Membership{
			Group: s.Group, Holder: s.Holder, Slot: s.Slot, Owned: s.Owned, Renewed: s.Renewed,
			Age: s.Age.Seconds(), Bound: s.Bound.Seconds(), ClockSkew: s.Skew.Seconds(), Peers: []replica.Peer{},
		}
		for _, p := range s.Peers {
			is.Peers = append(is.Peers, replica.Peer{Holder: warning.Shorten(p.Holder, warning.MaxName), Slot: p.Slot})
		}
		return is
	}
}

// groupProblems returns the problems of this process in its group.
func groupProblems(r *group.Replica) (all []fleet.Problem) {
	s := r.Status()
	if !s.Renewed {
		message := fmt.Sprintf("replica group %s: ", s.Group)
		if s.Err != nil {
			message += s.Err.Error()
		} else {
			message += fmt.Sprintf("the last renewal was %s ago", s.Age.Round(time.Second))
		}
		all = append(all, fleet.Problem{Reason: remedy.LeaseNotRenewed, Since: s.Since,
			Message: warning.Shorten(message, warning.MaxCause)})
	}
	if n := len(s.Ignored); n > 0 {
		message := s.Ignored[0].Error()
		if n > 1 {
			message += fmt.Sprintf("; and %d more", n-1)
		}
		all = append(all, fleet.Problem{Reason: remedy.LeaseIgnored,
			Message: warning.Shorten(message, warning.MaxCause)})
	}
	return all
}
