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
			Age: s.Age.Seconds(), Bound: s.Bound.Seconds(), Ahead: s.Ahead.Seconds(), ClockSkew: s.Skew.Seconds(),
			Peers: []replica.Peer{},
		}
		for _, p := range s.Peers {
			is.Peers = append(is.Peers, replica.Peer{Holder: warning.Shorten(p.Holder, warning.MaxName), Slot: p.Slot})
		}
		return is
	}
}

// mostAhead is how far versions may be ahead of the group cluster's time. The bounds of all replicas are
// an hour ahead: at 55 minutes, another replica cannot raise its versions above one that a client presents,
// and at the bound no version can be issued.
const mostAhead = 30 * time.Minute

// groupProblems returns the problems of a process in its group.
func groupProblems(s *group.Status) (all []fleet.Problem) {
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
	if s.Ahead > mostAhead {
		all = append(all, fleet.Problem{Reason: remedy.VersionsAhead, Message: fmt.Sprintf("replica group %s: the "+
			"versions of /fleet are %s ahead of the time of the group cluster", s.Group, s.Ahead.Round(time.Second))})
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
