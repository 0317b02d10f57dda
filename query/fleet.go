// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query

import (
	"iter"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/wire"
)

// fleetResource is a resource of a fleet.
type fleetResource struct {
	fleet    *fleet.Fleet
	resource schema.GroupResource
	view     *fleet.View[*wire.Object]
	indexes  map[string]*fleet.Index[*wire.Object, string]
}

func newFleetResource(f *fleet.Fleet, r schema.GroupResource, indexers Indexers) *fleetResource {
	s := &fleetResource{
		fleet: f, resource: r, view: fleet.OfResource[*wire.Object](f, r),
		indexes: map[string]*fleet.Index[*wire.Object, string]{},
	}
	for name, values := range indexers {
		s.indexes[name] = fleet.IndexBy(s.view, values)
	}
	return s
}

func (r *fleetResource) close() {
	for _, x := range r.indexes {
		x.Close()
	}
}

func (r *fleetResource) state(cluster string) (state, error) {
	members, view := r.fleet.Members(), r.view
	if len(members) == 0 && !r.fleet.Known() {
		return nil, refuse(http.StatusServiceUnavailable, "the clusters are not known yet")
	}
	if cluster != "" {
		m, ok := r.fleet.Member(cluster)
		switch {
		case !ok && !r.fleet.Known():
			return nil, refuse(http.StatusServiceUnavailable,
				"the clusters are not all known yet, and cluster %q is not one of those that are", cluster)
		case !ok:
			return nil, refuse(http.StatusNotFound, "cluster %q not found", cluster)
		}
		cluster = m.Name() // the parameter may be an alias
		members, view = []*fleet.Member{m}, view.In(cluster)
	}
	s := fleetState{resource: r, snapshot: view.Snapshot(), cluster: cluster}
	read := map[string]bool{}
	for name := range s.snapshot.Clusters() {
		read[name] = true
	}
	for _, m := range members {
		if !read[m.Name()] && r.expectedIn(m) {
			s.unread = append(s.unread, m.Name())
		}
	}
	switch {
	case len(read) > 0:
		return s, nil
	case len(s.unread) > 0:
		return nil, refuse(http.StatusServiceUnavailable, "the objects have not been read completely yet from %s",
			strings.Join(s.unread, ", "))
	default:
		return nil, refuse(http.StatusNotFound, "no cluster has %s", r.resource)
	}
}

// expectedIn reports whether a cluster without objects will have some when they have been
// read, as far as that is known.
func (r *fleetResource) expectedIn(m *fleet.Member) bool {
	return !m.Discovered() ||
		slices.ContainsFunc(m.Resources(), func(s fleet.ResourceStatus) bool {
			return s.Resource.GroupResource() == r.resource
		}) ||
		slices.ContainsFunc(m.Stale(), func(v schema.GroupVersion) bool { return v.Group == r.resource.Group })
}

// fleetState is a state of a resource of a fleet.
type fleetState struct {
	resource *fleetResource
	snapshot fleet.Snapshot[*wire.Object]
	// cluster is the name of the cluster that the request selects, if it selects one.
	cluster string
	unread  []string
}

func (s fleetState) get(key string) (*wire.Object, bool) {
	return s.snapshot.Get(fleet.Key{Cluster: s.cluster, Object: key})
}

func (s fleetState) walk(namespace, after string) iter.Seq2[string, *wire.Object] {
	return withTexts(s.snapshot.Range(prefix(namespace), keyOf(after)))
}

func (s fleetState) find(index, value, namespace, after string) (iter.Seq2[string, *wire.Object], error) {
	x := s.resource.indexes[index]
	if x == nil {
		return nil, unknownIndex(index, s.resource.indexes)
	}
	return withTexts(x.Range(s.snapshot, value, prefix(namespace), keyOf(after))), nil
}

// withTexts yields objects with the texts of their keys.
func withTexts(objects iter.Seq2[fleet.Key, *wire.Object]) iter.Seq2[string, *wire.Object] {
	return func(yield func(string, *wire.Object) bool) {
		for key, o := range objects {
			if !yield(key.String(), o) {
				return
			}
		}
	}
}

func (s fleetState) missing() []string { return s.unread }

func (s fleetState) freshness() *freshness.Freshness {
	var f freshness.Freshness
	for cluster, connection := range s.snapshot.Connections() {
		f.Add(cluster, connection)
	}
	for _, cluster := range s.unread {
		f.AddUnsynced(cluster)
	}
	return &f
}

// keyOf returns the key with a text. Names of clusters have no slash.
func keyOf(text string) fleet.Key {
	cluster, object, _ := strings.Cut(text, "/")
	return fleet.Key{Cluster: cluster, Object: object}
}
