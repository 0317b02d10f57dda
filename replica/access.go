// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"

	"github.com/watershed-project/watershed/fleet"
)

// Access is what the caller of a request may read. Nil, and the zero value, mean everything
// for as long as the request takes.
type Access struct {
	// Sees reports whether the caller may read what the request reads in a member. It
	// applies to requests that concern several members: below /fleet, and for /clusters
	// and the health of the server. It is called for each member once per request, also
	// for members that joined after Authorize has returned. For a member that was not
	// reviewed it returns false. Nil means all members.
	//
	// A member that is not seen is left out as if it were not in the fleet. The response
	// has a warning with the number of such members, and nothing else about them.
	Sees func(*fleet.Member) bool
	// Unavailable is how many of the members that are not seen are left out because their
	// access review did not finish in time. The response has a warning with that number.
	Unavailable int
	// Caller identifies the caller, in any form. Continue tokens and versions of the fleet
	// are valid only for the caller that received them. "" means that there is no access
	// control: then they are valid for all requests without a caller.
	Caller string
	// User identifies the user that sent the request, over all of its credentials and also
	// if it impersonates another one. A user sees its own writes, see [Options.PassThrough].
	User string
	// Ambient means that the caller is known by credentials that a browser adds to a request by
	// itself, such as a client certificate. Then pages of other sites cannot open a WebSocket.
	Ambient bool
	// Withheld, unless it is "", is why the request cannot be passed on to the cluster: the
	// caller has no credentials that can be. The response then contains it.
	Withheld string
	// Ends ends when the caller loses the right, or when Sees would return something else. A
	// watch then ends without an ERROR event, so that the client tries again and receives
	// the reason. Nil means never. It is a context because many watches can wait for it
	// without a goroutine each.
	Ends context.Context
}
