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
	"strings"
	"sync"
	"time"

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
	documents *discovery.Documents
}

// collection is one resource of all clusters that have it in one version.
type collection struct {
	everything *everything
	resource   kube.Resource
	view       *fleet.View[*wire.Object]
	// members are those that have it, by name.
	members map[string]*fleet.Member
	// heard is when the one was last heard of that was heard of longest ago.
	heard time.Time
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
	case path == "/healthz" || path == "/livez" || path == "/readyz":
		writeText(w, http.StatusOK, "ok")
	case !e.discovered():
		writeError(w, r, unknown("no cluster has said yet what it serves"))
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.documents == nil || !reflect.DeepEqual(served, e.served) {
		e.documents, e.served = discovery.New(readable(served, slices.ContainsFunc(e.server.fleet.Members(), defines)), nil, nil), served
		e.openapi.Changed()
	}
	return e.documents
}

// read answers a request for a resource. What it returns has not been answered.
func (e *everything) read(w http.ResponseWriter, r *http.Request, t target, path string) error {
	c := &collection{everything: e, members: map[string]*fleet.Member{}}
	var known *fleet.Member
	var others, silent []string
	var scope limits
	for _, m := range e.server.fleet.Members() {
		if !m.Discovered() {
			silent = append(silent, m.Name())
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
			others = append(others, m.Name())
			continue
		}
		if known == nil {
			known, c.resource = m, feed.Resource()
		}
		c.members[m.Name()] = m
		c.tellAge(w, m, feed)
	}
	switch {
	case known == nil && len(silent) > 0:
		return unknown("not all clusters have said yet what they serve: " + strings.Join(silent, ", "))
	case known == nil && scope.refuse(t) != nil:
		return scope.refuse(t)
	case known == nil:
		return missing(path)
	}
	if err := refusal(known, c.resource, r, &t, path, func() string { return "the cluster that the object is in" }); err != nil {
		return err
	}
	if !c.heard.IsZero() {
		w.Header().Set(ageHeader, ageSince(c.heard))
	}
	scope.warn(w.Header())
	if len(silent) > 0 {
		w.Header().Add("Warning", warning("not reached yet, and left out: cluster "+strings.Join(silent, ", ")))
	}
	if len(others) > 0 {
		w.Header().Add("Warning", warning(fmt.Sprintf("not served as %s, and left out: cluster %s", t.GroupVersion(), strings.Join(others, ", "))))
	}
	c.view = fleet.OfResource[*wire.Object](e.server.fleet, t.GroupResource()).In(slices.Collect(maps.Keys(c.members))...)
	q := &request{
		server: e.server, w: w, r: r, target: t, all: c,
		kind: c.resource.GroupVersionKind(), builtin: builtin(c.resource), namespaced: c.resource.Namespaced,
		known: e.server.cluster(known).types.of(known, c.resource),
	}
	return q.serve()
}

// tellAge warns of a cluster whose copy is not current, or not there, and takes note of
// the oldest that is.
func (c *collection) tellAge(w http.ResponseWriter, m *fleet.Member, feed *fleet.Feed) {
	s := feed.Connection()
	_, err := feed.Now()
	if err == nil && !s.Heard.IsZero() && (c.heard.IsZero() || s.Heard.Before(c.heard)) {
		c.heard = s.Heard
	}
	switch {
	case len(w.Header()["Warning"]) > mostWarnings:
	case err != nil:
		w.Header().Add("Warning", warning(fmt.Sprintf("cluster %s is not synced yet, and left out", m.Name())))
	case !s.StaleSince.IsZero() && s.State != reflector.Watching:
		w.Header().Add("Warning", staleWarning(m.Name(), s))
	}
}

// mostWarnings is how many clusters are named, more or less.
const mostWarnings = 20

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
