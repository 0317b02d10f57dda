// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/histogram"
	"github.com/watershed-project/watershed/replica/internal/requestmetrics"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// Stats are the counts of a server since it was made, and its present state.
type Stats struct {
	// Requests counts finished requests.
	Requests map[RequestLabels]uint64
	// Durations are those of finished requests that are not watches and do not stay open, by
	// Verb and Scope: the other labels are empty.
	Durations map[RequestLabels]histogram.Snapshot
	// Clusters has the counts of each cluster by its name. Only clusters that have had a
	// request are in it. The name "" is for requests below /fleet, and for those that address
	// no cluster.
	Clusters map[string]ClusterStats
	// Bytes counts the bytes of responses, as far as clients have received them, by verb: GET,
	// LIST, WATCH and OTHER.
	Bytes map[string]uint64
	// Open is how many responses are being written. Blocked is how many of them have waited
	// for their client for more than a second, and BlockedFor the longest time.
	Open, Blocked int
	BlockedFor    time.Duration
	// Cut counts clients that were cut off because they did not read, and Expired the watches
	// that ended with 410: the history has no complete changes from the client's version on.
	Cut, Expired uint64
}

// RequestLabels are the labels by which requests are counted, with the values of
// kube-apiserver's metric apiserver_request_total. Resources are those of discovery only.
type RequestLabels struct {
	Verb, Group, Version, Resource, Subresource string
	// Scope is cluster, namespace, resource or "", as in kube-apiserver.
	Scope string
	Code  int
}

// ClusterStats are the counts of one cluster.
type ClusterStats struct {
	// Saved counts requests that were answered from the copy and that a client would
	// otherwise have sent to the cluster, by verb: GET, LIST and WATCH. A request below /fleet
	// saves one for each cluster.
	Saved map[string]uint64
	// Passed counts requests that the cluster has answered.
	Passed uint64
	// Watches is how many watches are open.
	Watches int64
}

// Stats returns the counts. It takes about 100 ns for each kind of request and each cluster.
func (s *Server) Stats() Stats {
	load := s.tracker.Load()
	all := Stats{
		Requests: map[RequestLabels]uint64{}, Durations: map[RequestLabels]histogram.Snapshot{},
		Clusters: map[string]ClusterStats{"": clusterStats(&s.all.traffic)}, Bytes: s.tracker.Bytes(),
		Open: s.tracker.Len(), Blocked: load.Blocked, BlockedFor: load.Longest,
		Cut: load.Cut, Expired: s.requests.Expired.Load(),
	}
	for _, c := range s.present() {
		all.Clusters[c.member.Name()] = clusterStats(&c.traffic)
	}
	for l, n := range s.requests.Counts() {
		all.Requests[RequestLabels(l)] = n
	}
	for l, durations := range s.requests.Durations() {
		all.Durations[RequestLabels(l)] = durations
	}
	return all
}

func clusterStats(c *requestmetrics.Cluster) ClusterStats {
	return ClusterStats{Saved: c.Saved(), Passed: c.Passed.Load(), Watches: c.Watches.Load()}
}

// begin prepares to count a request, and returns the function that counts it at its end.
func (s *Server) begin(w *respond.Response, r *http.Request, q *Request) (end func()) {
	a := &q.attributes
	verb, began := verbLabel(r, a), time.Now()
	w.Classify(verb)
	at := &s.all.traffic
	if q.Member != nil {
		at = &s.cluster(q.Member).traffic
	}
	if verb == "WATCH" {
		at.Watches.Add(1)
	}
	return func() {
		if verb == "WATCH" {
			at.Watches.Add(-1)
		}
		code, origin := w.Status(), w.Header().Get("Watershed-Source") != ""
		if origin {
			at.Passed.Add(1)
		} else if a.IsResource && code < http.StatusMultipleChoices {
			at.Save(verb, s.concerned(q))
		}
		scope := scopeLabel(a)
		s.requests.Count(s.labels(q, verb, scope, code))
		if verb != "WATCH" && !q.staysOpen(r) {
			s.requests.Observe(requestmetrics.Labels{Verb: verb, Scope: scope}, time.Since(began))
		}
	}
}

// concerned returns how many clusters a request would have to be sent to without a copy.
func (s *Server) concerned(q *Request) int {
	if q.Fleet {
		return s.fleet.Len()
	}
	return 1
}

// labels returns the labels of a request. Only names that a discovery has become labels: any
// other may be made up by a client, also if a cluster has answered with success.
func (s *Server) labels(q *Request, verb, scope string, code int) requestmetrics.Labels {
	a := &q.attributes
	l := requestmetrics.Labels{Verb: verb, Scope: scope, Code: code}
	if !a.IsResource {
		return l
	}
	r := requestmetrics.Resource{Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource}
	known := s.requests.Known(r)
	if !known && s.lists(q) {
		known = s.requests.Admit(r)
	}
	if !known {
		l.Resource = requestmetrics.OtherResource
		return l
	}
	l.Group = r.Group
	l.Version = r.Version
	l.Resource = r.Resource
	l.Subresource = r.Subresource
	return l
}

// lists reports whether the program itself, or the discovery of a cluster that a request
// concerns, has the resource of the request.
func (s *Server) lists(q *Request) bool {
	a := &q.attributes
	resource := schema.GroupVersionResource{Group: a.Group, Version: a.Version, Resource: a.Resource}
	ofProgram := func(o ProgramResource) bool { return o.GroupVersionResource == resource && a.Subresource == "" }
	if slices.ContainsFunc(s.opts.ProgramResources, ofProgram) {
		return true
	}
	members := []*fleet.Member{q.Member}
	switch {
	case q.Fleet:
		members = s.fleet.Members()
	case q.Member == nil:
		return false
	}
	return slices.ContainsFunc(members, func(m *fleet.Member) bool { return m.Lists(resource, a.Subresource) })
}

// verbLabel returns the verb as kube-apiserver's metrics spell it. Methods that the
// Kubernetes API does not have are "OTHER".
func verbLabel(r *http.Request, a *Attributes) string {
	if !a.IsResource {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodOptions:
			return r.Method
		}
		return "OTHER"
	}
	switch a.Subresource {
	case "attach", "exec", "portforward", "proxy":
		return "CONNECT"
	}
	switch a.Verb {
	case "get", "list", "watch", "patch", "delete", "deletecollection":
		return strings.ToUpper(a.Verb)
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "proxy":
		return "CONNECT"
	}
	return "OTHER"
}

// scopeLabel returns the scope as kube-apiserver's metrics spell it: that of the path, so that
// a list of one name has the scope of the list.
func scopeLabel(a *Attributes) string {
	switch {
	case !a.IsResource:
		return ""
	case a.Name != "" && a.Verb != "list" && a.Verb != "watch" && a.Verb != "deletecollection", a.Verb == "create":
		return "resource"
	case a.Namespace != "":
		return "namespace"
	}
	return "cluster"
}
