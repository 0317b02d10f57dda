// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

var serverVersion = version.Info{
	Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37",
	GitVersion: "v1.37.1+simulated", BuildDate: "1970-01-01T00:00:00Z", Compiler: "gc",
}

// verbs are the verbs of all resources.
var verbs = []string{"get", "list", "watch"}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// catalogue has the discovery documents that all clusters share.
type catalogue struct {
	groups   []metav1.APIGroup // without the core group
	versions map[schema.GroupVersion]*metav1.APIResourceList
	// core and named are the aggregated documents of /api and /apis.
	core, named *apidiscoveryv2.APIGroupDiscoveryList
}

func newCatalogue(resources []resource) catalogue {
	k := catalogue{
		versions: map[schema.GroupVersion]*metav1.APIResourceList{},
		core:     newAggregated(),
		named:    newAggregated(),
	}
	for i := range resources {
		k.add(&resources[i])
	}
	return k
}

func newAggregated() *apidiscoveryv2.APIGroupDiscoveryList {
	return &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
	}
}

// add adds a resource, and its group if it is the first of the group.
func (k *catalogue) add(r *resource) {
	gv := r.GroupVersion()
	root := k.named
	if gv.Group == "" {
		root = k.core
	}
	list := k.versions[gv]
	if list == nil {
		list = &metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: gv.String(),
		}
		if gv.Group == "" {
			list.APIVersion = "" // as in the real server
		}
		k.versions[gv] = list
		root.Items = append(root.Items, apidiscoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Group},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{
				Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
			}},
		})
		if gv.Group != "" {
			v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
			k.groups = append(k.groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
	}
	list.APIResources = append(list.APIResources, metav1.APIResource{
		Name: r.Resource, SingularName: r.singular, Namespaced: r.namespaced, Kind: r.kind,
		Verbs: verbs, ShortNames: r.shortNames, Categories: r.categories,
	})
	scope := apidiscoveryv2.ScopeCluster
	if r.namespaced {
		scope = apidiscoveryv2.ScopeNamespace
	}
	kind := &metav1.GroupVersionKind{Kind: r.kind}
	if r.custom {
		kind.Group, kind.Version = gv.Group, gv.Version // otherwise they follow from the group
	}
	// The resources of a group are added one after the other.
	v := &root.Items[len(root.Items)-1].Versions[0]
	v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{
		Resource: r.Resource, SingularResource: r.singular, Scope: scope, Verbs: verbs,
		ResponseKind: kind, ShortNames: r.shortNames, Categories: r.categories,
	})
}

// discover sends the aggregated document, if the client accepts that, or the other.
func (c *Cluster) discover(w http.ResponseWriter, r *http.Request, aggregated *apidiscoveryv2.APIGroupDiscoveryList, other any) error {
	c.stats.discoveries.Add(1)
	if r.Method != http.MethodGet {
		return noMethod()
	}
	m, ok := negotiate(r.Header.Get("Accept"), func(m media) bool {
		whole := aggregated != nil && m.as == "APIGroupDiscoveryList" && m.group == apidiscoveryv2.GroupName && m.version == "v2"
		return m.encoding == jsonEncoding && (m.as == "" || whole)
	})
	switch {
	case !ok:
		return notAcceptable("only the following media types are accepted: application/json")
	case m.as != "":
		w.Header().Set("Cache-Control", "public")
		w.Header().Set("Vary", "Accept")
		c.document(w, aggregatedType, aggregated)
	default:
		c.document(w, runtime.ContentTypeJSON, other)
	}
	return nil
}

func (c *Cluster) discoverCore(w http.ResponseWriter, r *http.Request) error {
	return c.discover(w, r, c.server.catalogue.core, &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: c.Addr()},
		},
	})
}

func (c *Cluster) discoverGroups(w http.ResponseWriter, r *http.Request) error {
	return c.discover(w, r, c.server.catalogue.named, &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   c.server.catalogue.groups,
	})
}

func (c *Cluster) discoverGroup(w http.ResponseWriter, r *http.Request, group *metav1.APIGroup) error {
	g := *group
	g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return c.discover(w, r, nil, &g)
}

func (c *Cluster) discoverVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) error {
	return c.discover(w, r, nil, c.server.catalogue.versions[gv])
}

// group returns the group with a name, nil if there is none.
func (s *Server) group(name string) *metav1.APIGroup {
	for i := range s.catalogue.groups {
		if g := &s.catalogue.groups[i]; g.Name == name {
			return g
		}
	}
	return nil
}

// resource returns the resource with a name, nil if there is none.
func (s *Server) resource(name schema.GroupVersionResource) *resource {
	for i := range s.resources {
		if r := &s.resources[i]; r.GroupVersionResource == name {
			return r
		}
	}
	return nil
}
