// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica/internal/audience"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// Access is what the caller of a request may read. Nil, and the zero value, mean everything
// for as long as the request takes.
type Access struct {
	// CanSee reports whether the caller may read what the request reads in a member. It
	// applies to requests that concern several members: below /fleet, and for /clusters
	// and the health of the server. It is called for each member once per request, also
	// for members that joined after Authorize has returned. For a member that was not
	// reviewed it returns false. Nil means all members.
	//
	// A member that is not seen is left out as if it were not in the fleet. The response
	// has a warning with the number of such members, and nothing else about them.
	CanSee func(*fleet.Member) bool
	// Unavailable is how many of the members that are not seen are left out because their
	// access review did not finish in time. The response has a warning with that number.
	Unavailable int
	// Caller identifies the caller, in any form. Continue tokens and versions of the fleet
	// are valid only for the caller that received them. "" means that there is no access
	// control: then they are valid for all requests without a caller.
	Caller string
	// User identifies the user that sent the request, the same for all of the user's credentials, also
	// while impersonating. A user sees its own writes, see [Options.PassThrough].
	User string
	// Ambient means that the caller is known by credentials that a browser adds to a request by
	// itself, such as a client certificate. Then pages of other sites cannot open a WebSocket.
	Ambient bool
	// NoPassThrough, unless it is "", is why the request cannot be passed on to the cluster: the
	// caller has no credentials that can be. The response then contains it.
	NoPassThrough string
	// Expires ends when the caller loses the right, or when CanSee would return something else. A
	// watch then ends without an ERROR event, so that the client tries again and receives
	// the reason. Nil means never. It is a context because many watches can wait for it
	// without a goroutine each.
	Expires context.Context
}

// everything is the access to everything. It is never modified.
var everything = &Access{}

// authorize records what the caller of a request may read. A watch of several members ends
// when the members of the fleet change after the hook was called: only the hook knows whether
// the caller sees the new ones.
func (s *Server) authorize(r *http.Request, q *Request) error {
	if s.opts.Authorize == nil {
		if q.Passed {
			return nil
		}
		return checkImpersonation(r)
	}
	defer q.phase(PhaseAuthorize)()
	changed := s.membership.Changed()
	access, err := s.opts.Authorize(r, q)
	if err != nil || access == nil {
		return err
	}
	q.access = access
	if access.Expires != nil {
		q.ends = append(q.ends, access.Expires)
	}
	if q.Fleet && access.CanSee != nil {
		q.ends = append(q.ends, changed)
	}
	return nil
}

// visibleTo returns what the caller of a request sees of the fleet. The hook is asked once for each member.
func (s *Server) visibleTo(q *Request) *audience.Visible {
	return audience.Of(s.fleet.Members(), q.access.CanSee, q.access.Unavailable, &s.membership)
}

// checkImpersonation refuses a request for the rights of another user. Without access
// control it would be answered with the replica's own.
func checkImpersonation(r *http.Request) error {
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			return status.New(http.StatusForbidden, metav1.StatusReasonForbidden,
				"impersonation is forbidden: this replica reads with its own rights and cannot apply those of "+
					"another user; "+
					"ask the cluster's API server, or leave out --as, --as-group and --as-uid ("+name+")")
		}
	}
	return nil
}

// refuse writes the error of a hook. A refusal is that of kube-apiserver, without a warning.
// A 503 is written with a warning, because client-go drops the message of a failed
// discovery request.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if s.opts.Authorize == nil || status.Of(err).Code == http.StatusServiceUnavailable {
		respond.ErrorWithWarning(w, r, err)
		return
	}
	respond.Error(w, r, err)
}
