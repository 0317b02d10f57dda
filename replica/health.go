// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// readiness is whether the replica can be used: its directory has been read, and every
// cluster has synced or turned out to be unreachable, which takes a minute at most. Once it
// was ready it stays so: a cluster that joins later, or comes back, must not take all
// replicas out of a load balancer. Lists name the clusters that they leave out.
type readiness struct {
	fleet *fleet.Fleet
	// reached means that the replica was ready once.
	reached atomic.Bool
}

// serve answers a request for the readiness.
func (s *readiness) serve(w http.ResponseWriter, r *http.Request) {
	members := s.fleet.Members()
	var awaited, unreachable []string
	for _, m := range members {
		switch is := m.Status(); {
		case is.State == fleet.Connecting && is.Err != nil:
			unreachable = append(unreachable, m.Name())
		case is.State == fleet.Connecting:
			awaited = append(awaited, m.Name()+" (connecting)")
		case is.State == fleet.Syncing:
			awaited = append(awaited, fmt.Sprintf("%s (%d of %d resources)", m.Name(), is.Synced, is.Resources))
		}
	}
	known := s.fleet.Known()
	if known && len(awaited) == 0 {
		s.reached.Store(true)
	}
	ready := s.reached.Load()
	_, verbose := r.URL.Query()["verbose"]
	if ready && !verbose {
		respond.Text(w, http.StatusOK, "ok")
		return
	}
	var b strings.Builder
	check := func(ok bool, name, detail string) {
		sign, word := "[+]", "ok"
		if !ok {
			sign, word = "[-]", "failed"
		}
		if detail != "" {
			detail = ": " + detail
		}
		fmt.Fprintf(&b, "%s%s %s%s\n", sign, name, word, detail)
	}
	check(known, "directory", "")
	text := fmt.Sprintf("%d of %d synced", len(members)-len(awaited)-len(unreachable), len(members))
	if len(awaited) > 0 {
		text += ", awaiting " + warning.Names(awaited)
	}
	if len(unreachable) > 0 {
		text += ", unreachable " + warning.Names(unreachable)
	}
	check(ready || known && len(awaited) == 0, "clusters", text)
	if !ready {
		respond.Text(w, http.StatusInternalServerError, b.String()+"readyz check failed\n")
		return
	}
	respond.Text(w, http.StatusOK, b.String()+"readyz check passed\n")
}

// serveHealth reports on the copy of the cluster. It is alive if the cluster is a member, and
// ready when everything has been read.
func (c *clusterAPI) serveHealth(w http.ResponseWriter, r *http.Request, q *Request) {
	is := c.member.Status()
	ready := is.State == fleet.Live || is.State == fleet.Stale
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case q.Path != "/livez" && !ready:
		text := fmt.Sprintf("%s, %d of %d resources", is.State, is.Synced, is.Resources)
		if is.Err != nil {
			text += ": " + warning.Shorten(is.Err.Error(), warning.MaxCause)
		}
		respond.Text(w, http.StatusInternalServerError, fmt.Sprintf("[-]synced failed: %s\n%s check failed\n", text, q.Path[1:]))
	case verbose:
		respond.Text(w, http.StatusOK, fmt.Sprintf("[+]ping ok\n[+]synced ok\n%s check passed\n", q.Path[1:]))
	default:
		respond.Text(w, http.StatusOK, "ok")
	}
}
