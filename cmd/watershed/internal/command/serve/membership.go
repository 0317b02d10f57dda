// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"fmt"

	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
)

// mostAhead is how many seconds versions may be ahead of the group cluster's time. The bounds of all replicas are
// an hour ahead: at 55 minutes, another replica cannot raise its versions above one that a client presents,
// and at the bound no version can be issued.
const mostAhead = 30 * 60

// groupProblems returns the problems of a process in its group.
func groupProblems(s *group.Status) (all []fleet.Problem) {
	if !s.Renewed {
		message := fmt.Sprintf("replica group %s: ", s.Group)
		if s.Err != nil {
			message += s.Err.Error()
		} else {
			message += fmt.Sprintf("the last renewal was %.0f s ago", s.Age)
		}
		all = append(all, fleet.Problem{Reason: remedy.LeaseNotRenewed, Since: s.Since,
			Message: warning.Shorten(message, warning.MaxCause)})
	}
	if s.Ahead > mostAhead {
		all = append(all, fleet.Problem{Reason: remedy.VersionsAhead, Message: fmt.Sprintf("replica group %s: the "+
			"versions of /fleet are %.0f minutes ahead of the time of the group cluster", s.Group, s.Ahead/60)})
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
