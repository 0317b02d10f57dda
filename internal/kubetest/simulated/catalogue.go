// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// verbs are the verbs of all resources.
var verbs = []string{"get", "list", "watch"}

// catalogue has the resources that all clusters serve, and their discovery documents.
type catalogue struct {
	resources []resource
	groups    []metav1.APIGroup // without the core group
	versions  map[schema.GroupVersion]*metav1.APIResourceList
	// core and named are the aggregated documents of /api and /apis.
	core, named *apidiscoveryv2.APIGroupDiscoveryList
}

func newCatalogue(resources []resource) *catalogue {
	k := &catalogue{
		resources: resources,
		versions:  map[schema.GroupVersion]*metav1.APIResourceList{},
		core:      newAggregated(),
		named:     newAggregated(),
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
			k.groups = append(k.groups, metav1.APIGroup{
				Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
			})
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

// group returns the group with a name, nil if there is none.
func (k *catalogue) group(name string) *metav1.APIGroup {
	for i := range k.groups {
		if g := &k.groups[i]; g.Name == name {
			return g
		}
	}
	return nil
}

// resource returns the resource with a name, nil if there is none.
func (k *catalogue) resource(name schema.GroupVersionResource) *resource {
	for i := range k.resources {
		if r := &k.resources[i]; r.GroupVersionResource == name {
			return r
		}
	}
	return nil
}
