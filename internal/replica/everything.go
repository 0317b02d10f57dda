// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/discovery"
	"github.com/watershed-project/watershed/internal/openapi"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// everything is the API of all clusters at once.
type everything struct {
	server  *Server
	openapi *openapi.Documents
	pins    pins

	// mu guards what follows: the documents of discovery, and what they are of.
	mu        sync.Mutex
	served    []kube.Resource
	hidden    []kube.Resource // not mirrored
	documents *discovery.Documents
}

// collection is one resource of all clusters that have it in one version.
type collection struct {
	everything *everything
	resource   kube.Resource
	view       *fleet.View[*wire.Object]
	// members are those that have it, by name.
	members map[string]*fleet.Member
	// selector, if it is not nil, is what the request requires of the names of clusters.
	// Members are only those that it selects.
	selector labels.Selector
	// heard is when the one was last heard of that was heard of longest ago.
	heard time.Time
	// stale counts clusters that are not current, warnings is what is said of the first
	// ones, and unsynced names those of which nothing has been read.
	stale    int
	warnings []string
	unsynced []string
}

func newEverything(s *Server) *everything {
	e := &everything{server: s}
	e.openapi = openapi.New(func() *kube.Cluster {
		for _, m := range s.fleet.Members() {
			if m.Status().State == fleet.Live {
				return m.Cluster()
			}
		}
		return nil
	}, nil)
	return e
}

// serve answers a request for a path below the fleet's root.
func (e *everything) serve(w http.ResponseWriter, r *http.Request, path string) {
	w.Header().Set("Cache-Control", "no-cache, private")
	switch {
	case path == "/healthz" || path == "/livez":
		writeText(w, http.StatusOK, "ok")
	case path == "/readyz":
		e.server.serveReady(w, r)
	case !e.discovered():
		writeDiscoveryError(w, r, e.undiscovered())
	case isResource(path):
		t, _ := parsePath(path)
		if err := e.read(w, r, t, path); err != nil {
			writeError(w, r, err)
		}
	case e.discovery().Serve(w, r, path):
	case e.openapi.Serve(w, r, path):
	default:
		writeError(w, r, missing(path))
	}
}

// discovered reports whether any cluster has said what it serves.
func (e *everything) discovered() bool {
	return slices.ContainsFunc(e.server.fleet.Members(), (*fleet.Member).Discovered)
}

// undiscovered is the 503 while the resources of no cluster are known.
func (e *everything) undiscovered() error {
	members := e.server.fleet.Members()
	switch {
	case !e.server.fleet.Known():
		return unknown("the clusters are not known yet")
	case len(members) == 0:
		return apierrors.NewServiceUnavailable("there are no clusters")
	}
	return unreachable(members, "no cluster can be read")
}

// resources are what any cluster has, each in the version that most of them have.
func (e *everything) resources() []kube.Resource {
	var order []schema.GroupResource
	versions := map[schema.GroupResource]map[string]int{}
	first := map[schema.GroupVersionResource]kube.Resource{}
	for _, m := range e.server.fleet.Members() {
		for _, r := range m.Served() {
			at := r.GroupResource()
			if versions[at] == nil {
				order, versions[at] = append(order, at), map[string]int{}
			}
			versions[at][r.Version]++
			if _, ok := first[r.GroupVersionResource]; !ok {
				first[r.GroupVersionResource] = r
			}
		}
	}
	all := make([]kube.Resource, 0, len(order))
	for _, at := range order {
		best := slices.MaxFunc(slices.Sorted(maps.Keys(versions[at])), func(a, b string) int { return cmp.Compare(versions[at][a], versions[at][b]) })
		all = append(all, first[at.WithVersion(best)])
	}
	return all
}

func (e *everything) discovery() *discovery.Documents {
	served := e.resources()
	unmirrored := e.unmirrored()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.documents == nil || !reflect.DeepEqual(served, e.served) || !reflect.DeepEqual(unmirrored, e.hidden) {
		e.documents = discovery.New(readable(served, slices.ContainsFunc(e.server.fleet.Members(), defines)), unmirrored, nil, nil)
		e.served, e.hidden = served, unmirrored
		e.openapi.Changed()
	}
	return e.documents
}

// unmirrored returns the resources that some cluster serves and the replica does not mirror.
func (e *everything) unmirrored() []kube.Resource {
	var all []kube.Resource
	for _, m := range e.server.fleet.Members() {
		for _, r := range m.Unmirrored() {
			if !slices.ContainsFunc(all, func(other kube.Resource) bool { return other.GroupResource() == r.GroupResource() }) {
				all = append(all, r)
			}
		}
	}
	return all
}

// read answers a request for a resource. What it returns has not been answered.
func (e *everything) read(w http.ResponseWriter, r *http.Request, t target, path string) error {
	c := &collection{everything: e, members: map[string]*fleet.Member{}, selector: clusterSelector(r.URL.Query())}
	var known *fleet.Member
	// Holders have the resource in the version of the request, others in another one.
	var holders, others []string
	var silent []*fleet.Member
	var scope limits
	for _, m := range e.server.fleet.Members() {
		if !m.Discovered() {
			if c.selects(m.Name()) {
				silent = append(silent, m)
			}
			continue
		}
		if scope.leaveOut(m, t) {
			continue
		}
		feed, ok := m.Feed(t.GroupResource())
		if !ok {
			continue
		}
		if feed.Resource().Version != t.Version {
			if c.selects(m.Name()) {
				others = append(others, m.Name())
			}
			continue
		}
		if known == nil {
			known, c.resource = m, feed.Resource()
		}
		holders = append(holders, m.Name())
		if c.selects(m.Name()) {
			c.members[m.Name()] = m
			c.addAge(m, feed)
		}
	}
	switch {
	case known == nil && scope.refuse(t) == nil && slices.ContainsFunc(e.unmirrored(), isResourceOf(t)):
		return notMirrored(r, t, elsewhere)
	case known == nil && len(silent) > 0:
		return unreachable(silent, "not all clusters have said yet what they serve")
	case known == nil && scope.refuse(t) != nil:
		return scope.refuse(t)
	case known == nil:
		return missing(path)
	case len(c.members) == 0 && len(silent) > 0:
		return unreachable(silent, "no cluster that is selected can be read")
	}
	if err := refusal(known, c.resource, r, &t, path, elsewhere); err != nil {
		return err
	}
	scope.warn(w.Header())
	c.warn(w.Header(), t, silent, others)
	c.view = fleet.OfResource[*wire.Object](e.server.fleet, t.GroupResource()).In(holders...)
	q := &request{
		server: e.server, w: w, r: r, target: t, all: c,
		kind: c.resource.GroupVersionKind(), builtin: builtin(c.resource), namespaced: c.resource.Namespaced,
		known: e.server.cluster(known).types.of(known, c.resource),
	}
	return q.serve()
}

// elsewhere names where a request belongs that the fleet cannot answer.
func elsewhere() string { return "the cluster that the object is in" }

// addAge notes how old the copy of a cluster is.
func (c *collection) addAge(m *fleet.Member, feed *fleet.Feed) {
	s := feed.Connection()
	_, err := feed.Now()
	if err == nil && !s.Heard.IsZero() && (c.heard.IsZero() || s.Heard.Before(c.heard)) {
		c.heard = s.Heard
	}
	switch {
	case err != nil:
		c.unsynced = append(c.unsynced, m.Name())
	case !s.StaleSince.IsZero() && s.State != reflector.Watching:
		if c.stale++; c.stale <= mostWarnings {
			c.warnings = append(c.warnings, staleWarning(m.Name(), s))
		}
	}
}

// warn writes how old the answer is, and what is missing from it.
func (c *collection) warn(h http.Header, t target, silent []*fleet.Member, others []string) {
	if !c.heard.IsZero() {
		h.Set(ageHeader, ageSince(c.heard))
	}
	for _, text := range c.warnings {
		h.Add("Warning", text)
	}
	if more := c.stale - len(c.warnings); more > 0 {
		h.Add("Warning", warning(fmt.Sprintf("%d more clusters are stale", more)))
	}
	if len(c.unsynced) > 0 {
		h.Add("Warning", warning("not synced yet, and left out: cluster "+listed(c.unsynced)))
	}
	if len(silent) > 0 {
		var names []string
		for _, m := range silent {
			names = append(names, m.Name())
		}
		h.Add("Warning", warning("not reached yet, and left out: cluster "+listed(names)))
	}
	if len(others) > 0 {
		h.Add("Warning", warning(fmt.Sprintf("not served as %s, and left out: cluster %s", t.GroupVersion(), listed(others))))
	}
	if c.selector != nil && len(c.members) == 0 && len(others) == 0 {
		h.Add("Warning", warning(fmt.Sprintf("no cluster matches %s", c.selector)))
	}
}

// pins keeps states that lists are going on with, for a while.
type pins struct {
	mu  sync.Mutex
	all []pin // oldest first
}

type pin struct {
	resource schema.GroupVersionResource
	state    fleet.Snapshot[*wire.Object]
	at       time.Time
}

const (
	// A state is kept for pinFor after a page of it was read, but not more than
	// pinMost of them: what has changed since is kept with them.
	pinFor, pinMost = 2 * time.Minute, 32
)

// keep makes a state one that a list can go on with.
func (p *pins) keep(r schema.GroupVersionResource, s fleet.Snapshot[*wire.Object]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tidyLocked(r, s.Revision())
	p.all = append(p.all, pin{r, s, time.Now()})
	if len(p.all) > pinMost {
		p.all = slices.Delete(p.all, 0, 1)
	}
}

// tidyLocked drops what is too old, and one that is about to be kept again.
func (p *pins) tidyLocked(r schema.GroupVersionResource, revision uint64) {
	p.all = slices.DeleteFunc(p.all, func(one pin) bool {
		return time.Since(one.at) > pinFor || one.resource == r && one.state.Revision() == revision
	})
}

// tidy drops what is too old.
func (p *pins) tidy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tidyLocked(schema.GroupVersionResource{}, 0)
}

// find is a state that was kept.
func (p *pins) find(r schema.GroupVersionResource, revision uint64) (fleet.Snapshot[*wire.Object], bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.resource == r && one.state.Revision() == revision {
			return one.state, true
		}
	}
	return fleet.Snapshot[*wire.Object]{}, false
}
