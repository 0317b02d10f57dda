// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package discovery tells clients which resources there are, in the documents of a
// Kubernetes API server: the aggregated ones, which have everything in two answers,
// and the older ones, which have a group or a version each.
//
// Only reading is told of: the verbs get, list and watch of resources, and get of what
// is below their objects. What cannot be known from outside the server that stores the
// objects, which is the hash of a storage version, is left out.
//
// [Documents] never change: when the resources do, make others. They are encoded when
// first asked for, as JSON and protobuf each once; as YAML, and for people, every
// time, and so is the one that tells where the server is.
package discovery

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// told are the verbs that documents have.
var told = []string{"get", "list", "watch"}

// Documents are the discovery documents of one API server. All methods are safe for
// concurrent use.
type Documents struct {
	// aggregated are by path too: /api and /apis.
	aggregated map[string]*document
	legacy     map[string]*document
	// core are the versions of the group without a name.
	core []string
	// stale are the paths of versions that nothing is known of.
	stale map[string]bool
}

// group is what is told of one API group.
type group struct {
	name     string
	versions []*version
}

type version struct {
	schema.GroupVersion
	stale     bool
	resources []kube.Resource
}

// New makes the documents of what is served. Resources are in the server's order of
// groups and versions, and all of their subresources that have the verb get are told
// of. Unmirrored are resources that the server has and the copy does not: they are told of
// without verbs and categories, so that clients which are asked for one by name send the
// request and can be told why it fails, while those that list everything leave it
// out. One whose name another resource has is left out. Stale are the versions that there are and that cannot be discovered. Untold are
// others that the server has, which count where groups are put in order. All are read
// only.
func New(resources, unmirrored []kube.Resource, stale, untold []schema.GroupVersion) *Documents {
	var groups []*group
	names := map[string]bool{}
	for _, r := range resources {
		r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(verb string) bool { return !slices.Contains(told, verb) })
		if len(r.Verbs) == 0 {
			continue
		}
		r.Subresources = slices.DeleteFunc(slices.Clone(r.Subresources), func(s kube.Subresource) bool { return !slices.Contains(s.Verbs, "get") })
		v := find(&groups, r.GroupVersion())
		v.resources = append(v.resources, r)
		names[r.Resource] = true
	}
	for _, r := range unmirrored {
		if names[r.Resource] {
			continue
		}
		r.Verbs, r.Categories, r.Subresources = []string{}, nil, nil
		v := find(&groups, r.GroupVersion())
		v.resources = append(v.resources, r)
	}
	for _, gv := range stale {
		if v := find(&groups, gv); len(v.resources) == 0 {
			v.stale = true
		}
	}
	d := &Documents{aggregated: map[string]*document{}, legacy: map[string]*document{}, core: []string{}, stale: map[string]bool{}}
	d.add(groups)
	d.list(groups, untold)
	return d
}

// find is the version in its group, both added if they are new.
func find(groups *[]*group, gv schema.GroupVersion) *version {
	i := slices.IndexFunc(*groups, func(g *group) bool { return g.name == gv.Group })
	if i < 0 {
		i = len(*groups)
		*groups = append(*groups, &group{name: gv.Group})
	}
	g := (*groups)[i]
	for _, v := range g.versions {
		if v.Version == gv.Version {
			return v
		}
	}
	v := &version{GroupVersion: gv}
	g.versions = append(g.versions, v)
	return v
}

func (d *Documents) add(groups []*group) {
	core, others := aggregatedList(), aggregatedList()
	for _, g := range groups {
		root, list := "/apis/"+g.name, others
		if g.name == "" {
			root, list = "/api", core
			for _, v := range g.versions {
				d.core = append(d.core, v.Version)
			}
		} else {
			legacy := g.legacy()
			legacy.TypeMeta = typeMeta("APIGroup", "v1")
			d.legacy[root] = &document{object: &legacy}
		}
		list.Items = append(list.Items, g.aggregated())
		for _, v := range g.versions {
			path := root + "/" + v.Version
			if v.stale {
				d.stale[path] = true
				continue
			}
			d.legacy[path] = &document{object: v.legacy()}
		}
	}
	d.aggregated["/api"], d.aggregated["/apis"] = &document{object: core}, &document{object: others}
}

// list adds the list of all groups. It is in another order than the aggregated
// document, where groups of one priority go by their names: here they go by the
// smallest name of an API service of theirs, which is "v1.example.com". Nothing told
// here says which priority a group has, but those of definitions all have the same.
// So custom groups whose names are in order, one after the other, are taken for groups
// of one priority.
func (d *Documents) list(groups []*group, untold []schema.GroupVersion) {
	groups = slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return g.name == "" })
	service := map[string]string{}
	add := func(v schema.GroupVersion) {
		if name := v.Version + "." + v.Group; service[v.Group] == "" || name < service[v.Group] {
			service[v.Group] = name
		}
	}
	for _, g := range groups {
		for _, v := range g.versions {
			add(v.GroupVersion)
		}
	}
	for _, v := range untold {
		add(v)
	}
	alike := func(a, b *group) bool { return !ownGroup(a.name) && !ownGroup(b.name) && a.name < b.name }
	for first, end := 0, 0; first < len(groups); first = end {
		for end = first + 1; end < len(groups) && alike(groups[end-1], groups[end]); {
			end++
		}
		slices.SortFunc(groups[first:end], func(a, b *group) int { return cmp.Compare(service[a.name], service[b.name]) })
	}
	all := &metav1.APIGroupList{TypeMeta: typeMeta("APIGroupList", "v1"), Groups: []metav1.APIGroup{}}
	for _, g := range groups {
		all.Groups = append(all.Groups, g.legacy())
	}
	d.legacy["/apis"] = &document{object: all}
}

// versions is the list of versions of the group without a name, which says where the
// server is too: where the client has found it. The first of all documents has no
// version to this day.
func (d *Documents) versions(r *http.Request) *document {
	address := r.Host
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		address = local.String()
	}
	return &document{object: &metav1.APIVersions{
		TypeMeta: typeMeta("APIVersions", ""), Versions: d.core,
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}},
	}}
}

func typeMeta(kind, version string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: version}
}

func aggregatedList() *apidiscoveryv2.APIGroupDiscoveryList {
	return &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: typeMeta(aggregatedKind, apidiscoveryv2.SchemeGroupVersion.String()),
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
}

func (g *group) aggregated() apidiscoveryv2.APIGroupDiscovery {
	all := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		one := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		if v.stale {
			one.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		for _, r := range v.resources {
			scope := apidiscoveryv2.ScopeCluster
			if r.Namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			one.Resources = append(one.Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource:         r.Resource,
				ResponseKind:     responseKind(r, r.GroupVersionKind()),
				Scope:            scope,
				SingularResource: r.Singular,
				Verbs:            r.Verbs,
				ShortNames:       r.ShortNames,
				Categories:       r.Categories,
				Subresources:     aggregatedSubresources(r),
			})
		}
		all.Versions = append(all.Versions, one)
	}
	return all
}

func aggregatedSubresources(r kube.Resource) []apidiscoveryv2.APISubresourceDiscovery {
	var all []apidiscoveryv2.APISubresourceDiscovery
	for _, s := range r.Subresources {
		all = append(all, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: s.Name, ResponseKind: responseKind(r, s.GroupVersionKind), Verbs: []string{"get"},
		})
	}
	return all
}

func (g *group) legacy() metav1.APIGroup {
	all := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		all.Versions = append(all.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version})
	}
	all.PreferredVersion = all.Versions[0]
	return all
}

func (v *version) legacy() *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: typeMeta("APIResourceList", "v1"), GroupVersion: v.String(), APIResources: []metav1.APIResource{}}
	if v.Group == "" {
		list.APIVersion = ""
	}
	for _, r := range v.resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name:         r.Resource,
			SingularName: r.Singular,
			Namespaced:   r.Namespaced,
			Kind:         r.Kind,
			Verbs:        r.Verbs,
			ShortNames:   r.ShortNames,
			Categories:   r.Categories,
		})
		for _, s := range r.Subresources {
			one := metav1.APIResource{Name: r.Resource + "/" + s.Name, Namespaced: r.Namespaced, Kind: s.Kind, Verbs: []string{"get"}}
			if s.GroupVersion() != r.GroupVersion() {
				one.Group, one.Version = s.Group, s.Version
			}
			list.APIResources = append(list.APIResources, one)
		}
	}
	return list
}

// routed reports whether a server looks at media types before it looks at a path: at
// /api and the versions of its own.
func (d *Documents) routed(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		return true
	}
	return len(parts) == 3 && ownGroup(parts[1])
}

// responseKind is what the objects of a resource are, or what is below them. A server
// says no group and no version of its own types where they are those of the resource.
func responseKind(r kube.Resource, kind schema.GroupVersionKind) *metav1.GroupVersionKind {
	if ownGroup(r.Group) && kind.GroupVersion() == r.GroupVersion() {
		return &metav1.GroupVersionKind{Kind: kind.Kind}
	}
	return &metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
}

// ownGroup reports whether a group is kube-apiserver's, and not made by a definition.
func ownGroup(name string) bool {
	return kube.IsBuiltin(name) || name == "apiextensions.k8s.io" || name == "apiregistration.k8s.io"
}

// Serve answers a request for /api, /apis, or a group or version below them; path is
// the one below the root of the API server. For any other path it does nothing and
// returns false.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, path string) bool {
	// The server has the aggregated document at the one path and not at the other.
	plain := path == "/apis/"
	path = strings.TrimSuffix(path, "/")
	legacy, known := d.legacy[path]
	if path == "/api" {
		legacy, known = d.versions(r), true
	}
	if !known && !d.stale[path] {
		return false
	}
	if r.Method != http.MethodGet {
		respond.DocumentError(w, status.NoMethod())
		return true
	}
	if !known {
		// As the server says it that would have to ask another one.
		w.Header().Set("Cache-Control", "no-cache, private")
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return true
	}
	accept := r.Header.Get("Accept")
	if aggregated := d.aggregated[path]; aggregated != nil && !plain {
		if as, ok := negotiate(accept, true); ok {
			aggregated.serve(w, r, as)
			return true
		}
	}
	as, ok := negotiate(accept, false)
	if !ok {
		err := respond.NotAcceptable(false)
		if d.routed(path) {
			err = cmp.Or(respond.CheckRoute(accept, respond.ObjectTypes...), err)
		}
		respond.DocumentError(w, err)
		return true
	}
	legacy.serve(w, r, as)
	return true
}
