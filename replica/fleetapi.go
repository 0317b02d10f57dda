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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/discovery"
	"github.com/watershed-project/watershed/replica/internal/openapi"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// fleetAPI is the API of all members at once.
type fleetAPI struct {
	*shared
	fleet     *fleet.Fleet
	readiness *readiness
	openapi   *openapi.Documents
	pins      view.Pins
	// kinds returns the kinds of a member.
	kinds func(*fleet.Member) *view.Kinds

	// mu guards the fields below: the discovery documents, and what they are made from.
	mu        sync.Mutex
	served    []kube.Resource
	hidden    []kube.Resource // not mirrored
	documents *discovery.Documents
}

func newFleetAPI(s *shared, f *fleet.Fleet, ready *readiness, kinds func(*fleet.Member) *view.Kinds) *fleetAPI {
	return &fleetAPI{shared: s, fleet: f, readiness: ready, kinds: kinds, openapi: openapi.New(func() *kube.Cluster {
		for _, m := range f.Members() {
			if m.Status().State == fleet.Live {
				return m.Cluster()
			}
		}
		return nil
	}, nil)}
}

func (f *fleetAPI) serveHealth(w http.ResponseWriter, r *http.Request, q *Request) {
	if q.Path == "/readyz" {
		f.readiness.serve(w, r)
		return
	}
	respond.Text(w, http.StatusOK, "ok")
}

func (f *fleetAPI) unknown() error {
	members := f.fleet.Members()
	switch {
	case slices.ContainsFunc(members, (*fleet.Member).Discovered):
		return nil
	case !f.fleet.Known():
		return status.RetrySoon("the clusters are not known yet")
	case len(members) == 0:
		return apierrors.NewServiceUnavailable("there are no clusters")
	}
	return view.Unreachable(members, "no cluster can be read")
}

func (f *fleetAPI) schemas() *openapi.Documents { return f.openapi }

func (f *fleetAPI) discovery() *discovery.Documents {
	served := f.resources()
	unmirrored := f.unmirrored()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.documents == nil || !reflect.DeepEqual(served, f.served) || !reflect.DeepEqual(unmirrored, f.hidden) {
		f.documents = discovery.New(withCopied(served, slices.ContainsFunc(f.fleet.Members(), mirrorsDefinitions)), unmirrored, nil, nil)
		f.served, f.hidden = served, unmirrored
		f.openapi.Changed()
	}
	return f.documents
}

// resources returns the resources of all clusters, each in the version that most of them
// have.
func (f *fleetAPI) resources() []kube.Resource {
	var order []schema.GroupResource
	versions := map[schema.GroupResource]map[string]int{}
	first := map[schema.GroupVersionResource]kube.Resource{}
	for _, m := range f.fleet.Members() {
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

// unmirrored returns the resources that some cluster serves and the replica does not mirror.
func (f *fleetAPI) unmirrored() []kube.Resource {
	var all []kube.Resource
	for _, m := range f.fleet.Members() {
		for _, r := range m.Unmirrored() {
			if !slices.ContainsFunc(all, func(other kube.Resource) bool { return other.GroupResource() == r.GroupResource() }) {
				all = append(all, r)
			}
		}
	}
	return all
}

// census is which members a request for a resource concerns.
type census struct {
	selector labels.Selector
	limits   view.Limits
	fresh    freshness.Freshness
	// first is a member that has the resource in the version of the request, nil if there is
	// none, and resource is the resource of that member.
	first    *fleet.Member
	resource kube.Resource
	// holders have the resource in the version of the request, and selected is how many of
	// them the request selects. Others have it in another version.
	holders  []string
	selected int
	others   []string
	// silent are the members whose resources are not known.
	silent []*fleet.Member
}

// count looks at all members.
func (f *fleetAPI) count(q *Request) *census {
	c := &census{selector: view.ClusterSelector(q.Query.Get("labelSelector"))}
	for _, m := range f.fleet.Members() {
		wanted := view.Selects(c.selector, m.Name())
		if !m.Discovered() {
			if wanted {
				c.silent = append(c.silent, m)
			}
			continue
		}
		if c.limits.LeaveOut(m, q.GroupVersionResource, q.Namespace) {
			continue
		}
		feed, ok := m.Feed(q.GroupResource())
		if !ok {
			continue
		}
		if feed.Resource().Version != q.Version {
			if wanted {
				c.others = append(c.others, m.Name())
			}
			continue
		}
		if c.first == nil {
			c.first, c.resource = m, feed.Resource()
		}
		c.holders = append(c.holders, m.Name())
		if !wanted {
			continue
		}
		c.selected++
		if _, err := feed.Now(); err != nil {
			c.fresh.AddUnsynced(m.Name())
		} else {
			c.fresh.Add(m.Name(), feed.Connection())
		}
	}
	return c
}

// warnings returns the warnings about what is missing from the response.
func (c *census) warnings(q *Request) []string {
	var all []string
	if len(c.silent) > 0 {
		var names []string
		for _, m := range c.silent {
			names = append(names, m.Name())
		}
		all = append(all, "not reached yet, and left out: cluster "+warning.Names(names))
	}
	if len(c.others) > 0 {
		all = append(all, fmt.Sprintf("not served as %s, and left out: cluster %s", q.GroupVersion(), warning.Names(c.others)))
	}
	if c.selector != nil && c.selected == 0 && len(c.others) == 0 {
		all = append(all, fmt.Sprintf("no cluster matches %s", c.selector))
	}
	return all
}

func (f *fleetAPI) read(w http.ResponseWriter, r *http.Request, q *Request) error {
	c := f.count(q)
	scope := c.limits.Refuse(q.GroupResource(), q.Name)
	switch {
	case c.first == nil && scope == nil && slices.ContainsFunc(f.unmirrored(), isResourceOf(q)):
		return notMirrored(q, otherCluster)
	case c.first == nil && len(c.silent) > 0:
		return view.Unreachable(c.silent, "discovery of some clusters is not complete yet")
	case c.first == nil && scope != nil:
		return scope
	case c.first == nil:
		return missing(q.Path)
	case c.selected == 0 && len(c.silent) > 0:
		return view.Unreachable(c.silent, "none of the selected clusters can be read")
	}
	if err := refusal(c.first, c.resource, r, q, otherCluster); err != nil {
		return err
	}
	if wantsOrigin(r, q) {
		return apierrors.NewBadRequest("a consistent read needs a single cluster, below /clusters/NAME: reads of /fleet come from the copies")
	}
	warning.Add(w.Header(), c.limits.Warnings()...)
	c.fresh.Write(w.Header())
	warning.Add(w.Header(), c.warnings(q)...)
	v := view.OfFleet(f.fleet, q.GroupVersionResource, c.holders, c.selector, c.selected, &f.pins)
	return newCall(f.shared, w, r, q, c.resource, f.kinds(c.first).Of(c.first, c.resource), v).serve()
}

// otherCluster names the address for requests that the fleet cannot answer.
func otherCluster() string { return "the cluster that the object is in" }
