// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/watershed-project/watershed/fleet"
)

// serveReady reports whether the replica can be used: its directory has been read, and every
// cluster has synced or turned out to be unreachable, which takes a minute at most. Once
// it was ready it stays so: a cluster that joins later, or comes back, must not take
// all replicas out of a load balancer. Lists name the clusters that they leave out.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
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
		s.ready.Store(true)
	}
	ready := s.ready.Load()
	_, verbose := r.URL.Query()["verbose"]
	if ready && !verbose {
		writeText(w, http.StatusOK, "ok")
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
		text += ", awaiting " + listed(awaited)
	}
	if len(unreachable) > 0 {
		text += ", unreachable " + listed(unreachable)
	}
	check(ready || known && len(awaited) == 0, "clusters", text)
	if !ready {
		writeText(w, http.StatusInternalServerError, b.String()+"readyz check failed\n")
		return
	}
	writeText(w, http.StatusOK, b.String()+"readyz check passed\n")
}

// serveHealth reports on the copy of the cluster: it is alive if there is a cluster, and ready
// when everything has been read.
func (c *cluster) serveHealth(w http.ResponseWriter, r *http.Request, path string) {
	is := c.member.Status()
	ready := is.State == fleet.Live || is.State == fleet.Stale
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case path != "/livez" && !ready:
		text := fmt.Sprintf("%s, %d of %d resources", is.State, is.Synced, is.Resources)
		if is.Err != nil {
			text += ": " + shorten(is.Err.Error(), mostCause)
		}
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("[-]synced failed: %s\n%s check failed\n", text, path[1:]))
	case verbose:
		writeText(w, http.StatusOK, fmt.Sprintf("[+]ping ok\n[+]synced ok\n%s check passed\n", path[1:]))
	default:
		writeText(w, http.StatusOK, "ok")
	}
}
