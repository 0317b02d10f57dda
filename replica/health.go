// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/audience"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// readiness is whether the replica can be used: every source of clusters has been read, and every
// cluster has synced or turned out to be unreachable, which takes a minute at most. Once it
// was ready it stays so: a cluster that joins later, or comes back, must not take all
// replicas out of a load balancer. Lists name the clusters that they leave out.
type readiness struct {
	fleet *fleet.Fleet
	// reached means that the replica was ready once.
	reached atomic.Bool
}

// serve answers a request for the readiness. Probes have no credentials, so only a verbose
// response has details, and only about the clusters that its caller sees.
func (s *readiness) serve(w http.ResponseWriter, r *http.Request, seen *audience.Visible) {
	known, ready := s.fleet.Known(), s.isReady()
	_, verbose := r.URL.Query()["verbose"]
	if ready && !verbose {
		respond.Text(w, http.StatusOK, "ok")
		return
	}
	directory, clusters := "reason withheld", "reason withheld"
	if verbose {
		warning.Add(w.Header(), seen.Warnings("")...)
		clusters = progressOf(seen.Members)
	}
	switch {
	case known:
		directory = ""
	case verbose && seen.IsWhole():
		directory = unreported(s.fleet)
	}
	text := checkLine(known, "directory", directory) + checkLine(ready, "clusters", clusters)
	if !ready {
		respond.Text(w, http.StatusInternalServerError, text+"readyz check failed\n")
		return
	}
	respond.Text(w, http.StatusOK, text+"readyz check passed\n")
}

// unreported says which sources of clusters have not reported since they were configured.
func unreported(f *fleet.Fleet) string {
	var names []string
	for _, s := range f.Sources() {
		switch {
		case s.Reported:
		case s.Err != nil:
			names = append(names, s.Name+": "+warning.Shorten(s.Err.Error(), warning.MaxCause))
		default:
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return "the clusters are not known yet"
	}
	return "the clusters are not known yet: no report of " + strings.Join(names, ", and of ")
}

// isReady reports whether the replica is ready, or was once.
func (s *readiness) isReady() bool {
	if s.reached.Load() {
		return true
	}
	awaited := func(m *fleet.Member) bool { return isAwaited(m.Status()) }
	ready := s.fleet.Known() && !slices.ContainsFunc(s.fleet.Members(), awaited)
	if ready {
		s.reached.Store(true)
	}
	return ready
}

// isAwaited reports whether a cluster may soon be synced. One that cannot be reached is not
// awaited.
func isAwaited(is fleet.Status) bool {
	return is.State == fleet.Connecting && is.Err == nil || is.State == fleet.Syncing
}

// progressOf returns how many of the members have synced, and names the others.
func progressOf(members []*fleet.Member) string {
	var awaited, unreachable []string
	for _, m := range members {
		switch is := m.Status(); {
		case is.State == fleet.Syncing:
			awaited = append(awaited, fmt.Sprintf("%s (%d of %d resources)", m.Name(), is.Synced, is.Resources))
		case isAwaited(is):
			awaited = append(awaited, m.Name()+" (connecting)")
		case is.State == fleet.Connecting:
			unreachable = append(unreachable, m.Name())
		}
	}
	text := fmt.Sprintf("%d of %d synced", len(members)-len(awaited)-len(unreachable), len(members))
	if len(awaited) > 0 {
		text += ", awaiting " + warning.Names(awaited)
	}
	if len(unreachable) > 0 {
		text += ", unreachable " + warning.Names(unreachable)
	}
	return text
}

// checkLine returns the line of one check, in the form of kube-apiserver.
func checkLine(ok bool, name, detail string) string {
	sign, word := "[+]", "ok"
	if !ok {
		sign, word = "[-]", "failed"
	}
	if detail != "" {
		detail = ": " + detail
	}
	return fmt.Sprintf("%s%s %s%s\n", sign, name, word, detail)
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
		respond.Text(w, http.StatusInternalServerError,
			fmt.Sprintf("[-]synced failed: %s\n%s check failed\n", text, q.Path[1:]))
	case verbose:
		respond.Text(w, http.StatusOK, fmt.Sprintf("[+]ping ok\n[+]synced ok\n%s check passed\n", q.Path[1:]))
	default:
		respond.Text(w, http.StatusOK, "ok")
	}
}
