// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/audience"
	"github.com/watershed-project/watershed/replica/internal/discovery"
	"github.com/watershed-project/watershed/replica/internal/openapi"
	"github.com/watershed-project/watershed/replica/internal/passthrough"
	"github.com/watershed-project/watershed/replica/internal/requestmetrics"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// fleetAPI has what the requests to the API of several members share. It embeds the server for
// what all APIs share.
type fleetAPI struct {
	*Server
	documents fleetDocuments
	pins      view.Pins
	sets      view.Sets
	// traffic counts the requests that address no single cluster.
	traffic requestmetrics.Cluster
	// noSchemas are the OpenAPI documents while no member is live.
	noSchemas *openapi.Documents
}

func newFleetAPI(s *Server) *fleetAPI {
	return &fleetAPI{Server: s, noSchemas: openapi.New(func() *kube.Cluster { return nil }, nil)}
}

// seenFleet is the API of the members that the caller of one request sees.
type seenFleet struct {
	*fleetAPI
	*audience.Visible
}

func (f *seenFleet) serveHealth(w http.ResponseWriter, r *http.Request, q *Request) {
	if q.Path == "/readyz" {
		f.ready.serve(w, r, f.Visible)
		return
	}
	respond.Text(w, http.StatusOK, "ok")
}

func (f *seenFleet) unknown() error {
	switch {
	case slices.ContainsFunc(f.Members, (*fleet.Member).Discovered):
		return nil
	case !f.fleet.Known():
		return status.RetrySoon(unreported(f.fleet))
	case len(f.Members) == 0:
		return apierrors.NewServiceUnavailable("there are no clusters")
	}
	return view.Unreachable(f.Members, "no cluster can be read")
}

// schemas returns the documents of the first member that is live, or else of the first one
// that was. The members have their copies.
func (f *seenFleet) schemas() *openapi.Documents {
	var stale *fleet.Member
	for _, m := range f.Members {
		switch m.Status().State {
		case fleet.Live:
			return f.cluster(m).schemas()
		case fleet.Stale:
			stale = cmp.Or(stale, m)
		}
	}
	if stale != nil {
		return f.cluster(stale).schemas()
	}
	return f.noSchemas
}

func (f *seenFleet) discovery() *discovery.Documents {
	return f.documents.of(f.Set, setResources{
		served: f.resources(), unmirrored: f.unmirrored(),
		definitions: slices.ContainsFunc(f.Members, view.MirrorsDefinitions),
	})
}

// resources returns the resources of all clusters, each in the version that most of them
// have.
func (f *seenFleet) resources() []kube.Resource {
	var order []schema.GroupResource
	versions := map[schema.GroupResource]map[string]int{}
	first := map[schema.GroupVersionResource]kube.Resource{}
	for _, m := range f.Members {
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
		byClusters := func(a, b string) int { return cmp.Compare(versions[at][a], versions[at][b]) }
		best := slices.MaxFunc(slices.Sorted(maps.Keys(versions[at])), byClusters)
		all = append(all, first[at.WithVersion(best)])
	}
	return all
}

// unmirrored returns the resources that some cluster serves and the replica does not mirror.
func (f *seenFleet) unmirrored() []kube.Resource {
	var all []kube.Resource
	for _, m := range f.Members {
		for _, r := range m.Unmirrored() {
			same := func(other kube.Resource) bool { return other.GroupResource() == r.GroupResource() }
			if !slices.ContainsFunc(all, same) {
				all = append(all, r)
			}
		}
	}
	return all
}

// census sorts the members by what a request for a resource needs.
type census struct {
	// selector is what the request requires of clusters, nil if nothing. The requirements on
	// names and those on labels are its parts.
	selector, names, labels labels.Selector
	// visible has the caller's members. If the request selects clusters by labels, visible has only
	// the members with these labels.
	visible *audience.Visible
	limits  view.Limits
	fresh   freshness.Freshness
	// first is a member that has the resource in the version of the request, nil if there is
	// none, and resource is the resource of that member.
	first    *fleet.Member
	resource kube.Resource
	// holders serve the resource in the version of the request, whether the request selects them or
	// not. selected are the holders that the request selects. others are selected, and serve another
	// version.
	holders  []string
	selected []*fleet.Member
	others   []string
	// silent are the members whose resources are not known.
	silent []*fleet.Member
}

// count looks at all members.
func (f *seenFleet) count(q *Request) *census {
	c := &census{selector: view.ClusterSelector(q.Query.Get("labelSelector")), visible: f.Visible}
	c.names, c.labels = view.SplitClusters(c.selector)
	if c.labels != nil {
		// The labels are read after this, so that a change in between is not missed.
		q.ends = append(q.ends, f.membership.Relabelled())
		c.visible = f.Labelled(&f.membership, c.labels)
	}
	for _, m := range f.Members {
		wanted := view.Selects(c.names, m.Name()) && c.visible.Has(m)
		if !m.Discovered() || !f.Reads(m) {
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
		c.selected = append(c.selected, m)
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
		all = append(all, fmt.Sprintf("not served as %s, and left out: cluster %s",
			q.GroupVersion(), warning.Names(c.others)))
	}
	if c.selector != nil && len(c.selected) == 0 && len(c.others) == 0 {
		all = append(all, fmt.Sprintf("no cluster matches %s", c.selector))
	}
	return all
}

func (f *seenFleet) read(w http.ResponseWriter, r *http.Request, q *Request) error {
	warning.Add(w.Header(), f.Warnings("this resource there")...)
	if f.opts.FleetWarning != nil {
		if text := f.opts.FleetWarning(); text != "" {
			warning.Add(w.Header(), text)
		}
	}
	c := f.count(q)
	scope := c.limits.Refuse(q.GroupResource(), q.Name)
	switch {
	case c.first == nil && scope == nil && slices.ContainsFunc(f.unmirrored(), isResourceOf(q)):
		return notMirrored(q, f.where(q))
	case c.first == nil && len(c.silent) > 0:
		return view.Unreachable(c.silent, "discovery of some clusters is not complete yet")
	case c.first == nil && scope != nil:
		return scope
	case c.first == nil:
		return missing(q.Path)
	case len(c.selected) == 0 && len(c.silent) > 0:
		return view.Unreachable(c.silent, "none of the selected clusters can be read")
	}
	if err := refusal(c.first, c.resource, r, q, f.where(q)); err != nil {
		return err
	}
	if passthrough.WantsOrigin(r, q.Query) {
		return apierrors.NewBadRequest(
			"a consistent read needs a single cluster, below /clusters/NAME: reads of /fleet come from the copies")
	}
	warning.Add(w.Header(), c.limits.Warnings()...)
	if !q.ReadsPast() {
		c.fresh.Write(w.Header())
	}
	warning.Add(w.Header(), c.warnings(q)...)
	v := view.OfFleet(view.Selection{
		Fleet: f.fleet, Resource: q.GroupVersionResource,
		Members: c.visible.Members, Audience: f.audienceOf(q, c.visible),
		Labelled: c.labels != nil, Holders: c.holders, Selector: c.names, Selected: len(c.selected),
	}, &f.pins)
	answer := func(v view.View) error {
		one := f.readRequest(q, c.resource, f.cluster(c.first).kinds.Of(c.first, c.resource), v)
		one.Seal = f.seals.Seal(q.access.Caller, "fleet", c.visible.Set, q.String(), q.Namespace)
		return f.reads.Serve(w, r, one)
	}
	if q.ReadsPast() {
		return f.past.Fleet(r, f.pastRequest(r, q), c.selected, c.resource.Namespaced).Serve(w, v, answer)
	}
	return answer(v)
}

// audienceOf returns what a view needs to know of the caller. A list or a watch is identified by everything that an
// authorizer may decide by: members that are seen in one list need not be seen in another.
func (f *seenFleet) audienceOf(q *Request, visible *audience.Visible) *view.Audience {
	a := visible.Audience(q.access.Caller)
	if a != nil && (q.Verb == "list" || q.Verb == "watch") {
		a.Sets = &f.sets
		a.List = view.NewListID(q.String(), q.Namespace, q.Name,
			q.Query.Get("fieldSelector"), q.Query.Get("labelSelector"))
	}
	return a
}

// where returns the address for a request that the fleet cannot answer: the API server of the cluster that has the
// object, or its path below /clusters if that passes the caller's requests on.
func (f *seenFleet) where(q *Request) func() string {
	return func() string {
		var names []string
		var only *fleet.Member
		for _, m := range f.Members {
			if feed, ok := m.Feed(q.GroupResource()); ok && q.Name != "" && f.Reads(m) && hasObject(feed, q) {
				names, only = append(names, m.Name()), m
			}
		}
		passed := f.opts.PassThrough && q.access.NoPassThrough == ""
		switch {
		case len(names) == 1 && passed:
			return "cluster " + names[0] + ", at /clusters/" + names[0]
		case len(names) == 1:
			return "cluster " + names[0] + ", at " + addressOf(only)
		case len(names) > 1 && passed:
			return "the one of these clusters that you mean, at /clusters/NAME: " + warning.Names(names)
		case len(names) > 1:
			return "the API server of the one of these clusters that you mean: " + warning.Names(names)
		case passed:
			return "a single cluster, at /clusters/NAME"
		}
		return "the API server of a single cluster"
	}
}

// addressOf returns the address of a member's API server, or its name while the address is not known.
func addressOf(m *fleet.Member) string {
	if connection := m.Cluster(); connection != nil {
		return connection.Config().Host
	}
	return "the cluster " + m.Name()
}

// hasObject reports whether a feed has the object that a request names.
func hasObject(feed *history.Feed, q *Request) bool {
	now, err := feed.Now()
	if err != nil {
		return false
	}
	_, ok := now.State.Get(view.ObjectKey(q.Namespace, q.Name))
	return ok
}

// serveSummary answers with the numbers of changes in all members that the caller sees.
func (f *seenFleet) serveSummary(w http.ResponseWriter, r *http.Request, q *Request) error {
	return f.past.ServeFleetSummary(w, r, f.pastRequest(r, q), func() []*fleet.Member {
		warning.Add(w.Header(), f.Warnings("the changes there")...)
		return f.selectedMembers(q)
	})
}

// selectedMembers returns the members that the label selector of a request selects and that can
// be read.
func (f *seenFleet) selectedMembers(q *Request) []*fleet.Member {
	names, own := view.SplitClusters(view.ClusterSelector(q.Query.Get("labelSelector")))
	return slices.DeleteFunc(slices.Clone(f.Members), func(m *fleet.Member) bool {
		return !f.Reads(m) || !view.Selects(names, m.Name()) || !view.SelectsLabels(own, m.Labels())
	})
}
