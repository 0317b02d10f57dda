// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package discovery serves the list of resources, in the documents of a Kubernetes API
// server: the aggregated ones, which contain everything in two responses, and the older
// ones, which describe one group or one version each.
//
// The documents list only reads: the verbs get, list and watch of resources, and get of
// subresources. Resources that are not mirrored are added with [Documents.With]. The hash of a storage version is left
// out, because only the server that stores the objects knows it.
//
// [Documents] never change: when the resources change, make new ones. A document is
// encoded on first use, once as JSON and once as protobuf. YAML and indented JSON are
// encoded for every request, and so is the document that contains the address of the
// server.
package discovery

import (
	"cmp"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// listedVerbs are the verbs that the documents list.
var listedVerbs = []string{"get", "list", "watch"}

// Documents are the discovery documents of one API server. All methods are safe for
// concurrent use.
type Documents struct {
	// aggregated is by path too: /api and /apis.
	aggregated map[string]*document
	legacy     map[string]*document
	// core are the versions of the core group, whose name is empty.
	core []string
	// stale are the paths of versions whose resources are not known.
	stale map[string]bool

	// groups and unlisted are what the documents are made from.
	groups   []*group
	unlisted []schema.GroupVersion

	// mu guards the fields below: the result of the last call of With, and its argument.
	mu   sync.Mutex
	own  []kube.Resource
	with *Documents
}

// group is one API group in the documents.
type group struct {
	name     string
	versions []*version
}

type version struct {
	schema.GroupVersion
	stale     bool
	resources []kube.Resource
}

// New returns the documents for the resources that are served. It only reads its
// arguments:
//
//   - resources are in the server's order of groups and versions. Their subresources
//     are listed if they have the verb get.
//   - unmirrored are resources that the server has and the copy does not. They are
//     listed without verbs and categories: a client that wants one by name sends the
//     request and receives the reason why it fails, and a client that lists everything
//     leaves it out. A resource that has the name of a mirrored one is not listed.
//   - stale are versions that exist and cannot be discovered.
//   - unlisted are further versions of the server, which affect only the order of groups.
func New(resources, unmirrored []kube.Resource, stale, unlisted []schema.GroupVersion) *Documents {
	var groups []*group
	names := map[string]bool{}
	for _, r := range resources {
		r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(verb string) bool {
			return !slices.Contains(listedVerbs, verb)
		})
		if len(r.Verbs) == 0 {
			continue
		}
		r.Subresources = slices.DeleteFunc(slices.Clone(r.Subresources), func(s kube.Subresource) bool {
			return !slices.Contains(s.Verbs, "get")
		})
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
	return newDocuments(groups, unlisted)
}

func newDocuments(groups []*group, unlisted []schema.GroupVersion) *Documents {
	d := &Documents{
		aggregated: map[string]*document{},
		legacy:     map[string]*document{},
		core:       []string{},
		stale:      map[string]bool{},
		groups:     groups,
		unlisted:   unlisted,
	}
	d.add(groups)
	d.list(groups, unlisted)
	return d
}

// With returns the documents with further resources, which are listed with all their verbs.
// It keeps the result for the next call. Groups come in the order of the unlisted versions of
// [New], and a group that is not among them comes last.
func (d *Documents) With(own []kube.Resource) *Documents {
	if len(own) == 0 {
		return d
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.with == nil || !reflect.DeepEqual(own, d.own) {
		d.own, d.with = own, newDocuments(d.groupsWith(own), d.unlisted)
	}
	return d.with
}

// groupsWith returns the groups with further resources. The groups of d stay as they are.
func (d *Documents) groupsWith(own []kube.Resource) []*group {
	groups := make([]*group, len(d.groups))
	for i, g := range d.groups {
		groups[i] = &group{name: g.name}
		for _, v := range g.versions {
			clone := *v
			clone.resources = slices.Clone(v.resources)
			groups[i].versions = append(groups[i].versions, &clone)
		}
	}
	for _, r := range own {
		before := len(groups)
		v := find(&groups, r.GroupVersion())
		v.stale, v.resources = false, append(v.resources, r)
		if at := d.place(r.Group, groups[:before]); len(groups) > before && at < before {
			groups = slices.Insert(groups[:before], at, groups[before])
		}
	}
	return groups
}

// place returns where a group that is new among others comes.
func (d *Documents) place(name string, groups []*group) int {
	index := func(name string) int {
		return slices.IndexFunc(d.unlisted, func(v schema.GroupVersion) bool { return v.Group == name })
	}
	own := index(name)
	i := slices.IndexFunc(groups, func(g *group) bool { return own >= 0 && index(g.name) > own })
	if i < 0 {
		return len(groups)
	}
	return i
}

// find returns the version in its group, and adds either if it is new.
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

// list adds the list of all groups. Its order differs from the aggregated document, where
// groups of one priority are ordered by name: here they are ordered by the smallest name
// of their API services, such as "v1.example.com". The priority of a group is not known
// here, but all groups of definitions have the same one. So consecutive custom groups
// whose names are in order are assumed to have one priority.
func (d *Documents) list(groups []*group, unlisted []schema.GroupVersion) {
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
	for _, v := range unlisted {
		add(v)
	}
	alike := func(a, b *group) bool { return !ownGroup(a.name) && !ownGroup(b.name) && a.name < b.name }
	for first, end := 0, 0; first < len(groups); first = end {
		for end = first + 1; end < len(groups) && alike(groups[end-1], groups[end]); {
			end++
		}
		slices.SortFunc(groups[first:end], func(a, b *group) int {
			return cmp.Compare(service[a.name], service[b.name])
		})
	}
	all := &metav1.APIGroupList{TypeMeta: typeMeta("APIGroupList", "v1"), Groups: []metav1.APIGroup{}}
	for _, g := range groups {
		all.Groups = append(all.Groups, g.legacy())
	}
	d.legacy["/apis"] = &document{object: all}
}

// versions returns the list of versions of the core group. It contains the address at
// which the client reached the server. As in kube-apiserver, it has no apiVersion.
func (d *Documents) versions(r *http.Request) *document {
	address := r.Host
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		address = local.String()
	}
	return &document{object: &metav1.APIVersions{
		TypeMeta: typeMeta("APIVersions", ""), Versions: d.core,
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0",
			ServerAddress: address}},
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
		one := apidiscoveryv2.APIVersionDiscovery{
			Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		}
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
		all.Versions = append(all.Versions,
			metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version})
	}
	all.PreferredVersion = all.Versions[0]
	return all
}

func (v *version) legacy() *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta: typeMeta("APIResourceList", "v1"), GroupVersion: v.String(), APIResources: []metav1.APIResource{},
	}
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
			one := metav1.APIResource{
				Name: r.Resource + "/" + s.Name, Namespaced: r.Namespaced, Kind: s.Kind, Verbs: []string{"get"},
			}
			if s.GroupVersion() != r.GroupVersion() {
				one.Group, one.Version = s.Group, s.Version
			}
			list.APIResources = append(list.APIResources, one)
		}
	}
	return list
}

// routed reports whether the server checks media types before it looks up a path: it does
// for /api and for versions of built-in groups.
func (d *Documents) routed(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		return true
	}
	return len(parts) == 3 && ownGroup(parts[1])
}

// responseKind returns the kind of a resource's objects, or of a subresource. Like
// kube-apiserver, it omits group and version for built-in types if they are those of the
// resource.
func responseKind(r kube.Resource, kind schema.GroupVersionKind) *metav1.GroupVersionKind {
	if ownGroup(r.Group) && kind.GroupVersion() == r.GroupVersion() {
		return &metav1.GroupVersionKind{Kind: kind.Kind}
	}
	return &metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
}

// ownGroup reports whether a group belongs to kube-apiserver, and not to a definition.
func ownGroup(name string) bool {
	return kube.IsBuiltin(name) || name == "apiextensions.k8s.io" || name == "apiregistration.k8s.io"
}

// Serve answers a request for /api, /apis, or a group or version below them. The path is
// relative to the root of the API server. For any other path it writes nothing and
// returns false.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, path string) bool {
	// kube-apiserver has the aggregated document at /apis and not at /apis/.
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
		// kube-apiserver answers so if it cannot reach the server of an aggregated API.
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
