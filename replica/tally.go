// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/histogram"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

const (
	// maxRequestLabels limits the combinations of labels that requests are counted by. More
	// are counted as requests for the resource otherResource. One takes about 250 bytes.
	maxRequestLabels = 4096
	// otherResource is the resource of requests for resources that no cluster has.
	otherResource = "other"
)

// durationBounds are the buckets of [DurationStats].
var durationBounds = []time.Duration{
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 30 * time.Second,
}

// RequestLabels are the labels by which requests are counted, with the values of
// kube-apiserver's metric apiserver_request_total. Resources are those of discovery only.
type RequestLabels struct {
	Verb, Group, Version, Resource, Subresource string
	// Scope is cluster, namespace, resource or "", as in kube-apiserver.
	Scope string
	Code  int
}

// tally counts the requests to a server. A request costs about 300 ns: a lock for reading, a search in a
// map, and four atomic additions.
type tally struct {
	// expired counts the watches that ended because their client was too slow for the
	// history.
	expired atomic.Uint64

	// mu guards the maps. Their values are modified without it.
	mu        sync.RWMutex
	requests  map[RequestLabels]*atomic.Uint64
	durations map[durationLabels]*histogram.Histogram
	// resources are the resources that are counted by name.
	resources map[resourceLabels]struct{}
}

// savings counts the requests that were answered from the copy, by verb.
type savings struct{ get, list, watch atomic.Uint64 }

type durationLabels struct{ verb, scope string }

type resourceLabels struct{ group, version, resource, subresource string }

// clusterTally counts the requests for one cluster.
type clusterTally struct {
	saved   savings
	passed  atomic.Uint64
	watches atomic.Int64
}

// add counts n requests of a verb.
func (s *savings) add(verb string, n int) {
	switch verb {
	case "GET":
		s.get.Add(uint64(n))
	case "LIST":
		s.list.Add(uint64(n))
	case "WATCH":
		s.watch.Add(uint64(n))
	}
}

// Savings counts requests by verb.
type Savings struct{ Get, List, Watch uint64 }

func (s *savings) load() Savings {
	return Savings{Get: s.get.Load(), List: s.list.Load(), Watch: s.watch.Load()}
}

// verbLabel returns the verb as kube-apiserver's metrics spell it. Methods that the
// Kubernetes API does not have are "OTHER".
func verbLabel(r *http.Request, a *Attributes) string {
	if !a.IsResource {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
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

// byteClass returns the class of a response for [respond.Tracker.Bytes].
func byteClass(verb string) int {
	switch verb {
	case "GET":
		return respond.GetBytes
	case "LIST":
		return respond.ListBytes
	case "WATCH":
		return respond.WatchBytes
	}
	return respond.OtherBytes
}

// known reports whether a resource is counted by its name.
func (t *tally) known(r resourceLabels) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.resources[r]
	return ok
}

// admit makes a resource be counted by its name, unless there are too many.
func (t *tally) admit(r resourceLabels) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.resources) >= maxRequestLabels || len(t.requests) >= maxRequestLabels {
		return false
	}
	if t.resources == nil {
		t.resources = map[resourceLabels]struct{}{}
	}
	t.resources[r] = struct{}{}
	return true
}

// count counts a request.
func (t *tally) count(l RequestLabels) {
	t.mu.RLock()
	n := t.requests[l]
	t.mu.RUnlock()
	if n == nil {
		n = t.counter(l)
	}
	n.Add(1)
}

// counter returns the counter of labels, which it makes if there is room for it.
func (t *tally) counter(l RequestLabels) *atomic.Uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.requests == nil {
		t.requests = map[RequestLabels]*atomic.Uint64{}
	}
	if len(t.requests) >= maxRequestLabels {
		// The verbs, scopes and codes of the rest are few.
		l = RequestLabels{Verb: l.Verb, Resource: otherResource, Scope: l.Scope, Code: l.Code}
	}
	if t.requests[l] == nil {
		t.requests[l] = new(atomic.Uint64)
	}
	return t.requests[l]
}

// duration returns the histogram of labels. There are few of them.
func (t *tally) duration(l durationLabels) *histogram.Histogram {
	t.mu.RLock()
	h := t.durations[l]
	t.mu.RUnlock()
	if h != nil {
		return h
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.durations == nil {
		t.durations = map[durationLabels]*histogram.Histogram{}
	}
	if t.durations[l] == nil {
		t.durations[l] = histogram.New(durationBounds)
	}
	return t.durations[l]
}
