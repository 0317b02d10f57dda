// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/listwatch"
)

// GroupError reports that a version of a group could not be discovered, while others
// could.
type GroupError struct {
	GroupVersion schema.GroupVersion
	Err          error
}

// Error returns the version and the cause.
func (e *GroupError) Error() string { return e.GroupVersion.String() + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *GroupError) Unwrap() error { return e.Err }

// ErrStale means that the server for a version of a group does not respond.
var ErrStale = errors.New("discovery is stale: its API server does not answer")

// missInterval is the minimum age of a discovery before a lookup that it cannot answer
// causes another one.
const missInterval = 2 * time.Second

// Resolve returns the resource of a kind; without a version, in the version that the
// server prefers. It uses the last discovery. If that does not contain the kind, it is
// repeated, unless it is less than two seconds old. If the cluster does not serve the
// kind, [meta.IsNoMatchError] is true for the error.
func (c *Cluster) Resolve(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	miss := &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	if kind.Version != "" {
		miss.SearchedVersions = []string{kind.Version}
	}
	return c.resolve(ctx, miss, func(e *edition) *Resource { return e.byKind[kind] })
}

// ResolveResource is Resolve for a resource.
func (c *Cluster) ResolveResource(ctx context.Context, resource schema.GroupVersionResource) (Resource, error) {
	miss := &meta.NoResourceMatchError{PartialResource: resource}
	return c.resolve(ctx, miss, func(e *edition) *Resource { return e.byResource[resource] })
}

// resolve finds a resource, or returns miss. If the resource is not in the last
// discovery, it repeats a discovery that is older than missInterval.
func (c *Cluster) resolve(ctx context.Context, miss error, find func(*edition) *Resource) (Resource, error) {
	began := time.Now()
	if e := c.catalogue.latest.Load(); e != nil {
		if r := find(e); r != nil {
			return *r, nil
		}
	}
	select {
	case c.catalogue.turn <- struct{}{}:
		defer func() { <-c.catalogue.turn }()
	case <-ctx.Done():
		return Resource{}, fmt.Errorf("discover in %s: %w", c.name, ctx.Err())
	}
	// The previous holder of the turn may have run discovery meanwhile.
	e := c.catalogue.latest.Load()
	if e == nil || find(e) == nil && e.at.Before(began.Add(-missInterval)) {
		at := time.Now()
		resources, err := c.Resources(ctx)
		if len(resources) == 0 && err != nil {
			return Resource{}, err
		}
		e = newEdition(resources, at, err)
		c.catalogue.latest.Store(e)
	}
	if r := find(e); r != nil {
		return *r, nil
	}
	if e.err != nil {
		return Resource{}, fmt.Errorf("discover in %s: %w, while discovery is incomplete: %w", c.name, miss, e.err)
	}
	return Resource{}, fmt.Errorf("discover in %s: %w", c.name, miss)
}

// Resources returns all resources that the cluster serves, in the server's order. If some
// versions cannot be discovered, it returns the rest with an error that joins a
// [*GroupError] for each missing version.
func (c *Cluster) Resources(ctx context.Context) ([]Resource, error) {
	core, coreErr := c.discover(ctx, "api")
	if ctx.Err() != nil {
		return nil, coreErr
	}
	if apierrors.IsNotFound(coreErr) {
		coreErr = nil // an API server without the core group
	}
	named, namedErr := c.discover(ctx, "apis")
	resources := append(core, named...)
	if len(resources) == 0 && ctx.Err() != nil {
		return nil, namedErr
	}
	return resources, errors.Join(coreErr, namedErr)
}

// discoveryAccept requests everything in one document, or else the list of groups.
const discoveryAccept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

func (c *Cluster) discoveryRequest(accept string, path ...string) *request {
	return &request{
		path:   path,
		accept: accept,
		Request: listwatch.Request{
			Doing:      fmt.Sprintf("discover /%s in %s", strings.Join(path, "/"), c.name),
			Collection: true,
		},
	}
}

// discover reads one of the two roots, api and apis.
func (c *Cluster) discover(ctx context.Context, root string) ([]Resource, error) {
	var (
		whole     bool // the document has everything
		resources []Resource
		missing   error
		groups    metav1.APIGroupList
	)
	err := c.document(ctx, c.discoveryRequest(discoveryAccept, root), func(body []byte, h http.Header) (err error) {
		whole = isAggregated(h)
		switch {
		case whole:
			var list apidiscoveryv2.APIGroupDiscoveryList
			if err = json.Unmarshal(body, &list); err == nil {
				resources, missing = aggregated(&list)
			}
		case root == "api":
			groups, err = coreGroup(body)
		default:
			err = json.Unmarshal(body, &groups)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case whole:
		return resources, missing
	}
	return c.discoverEach(ctx, groups.Groups)
}

func isAggregated(h http.Header) bool {
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == runtime.ContentTypeJSON &&
		params["g"] == apidiscoveryv2.GroupName && params["v"] == "v2" && params["as"] == "APIGroupDiscoveryList"
}

func aggregated(list *apidiscoveryv2.APIGroupDiscoveryList) ([]Resource, error) {
	var all []Resource
	var errs []error
	for _, g := range list.Items {
		var group []Resource
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				errs = append(errs, &GroupError{GroupVersion: gv, Err: ErrStale})
				continue
			}
			for _, r := range v.Resources {
				if r.ResponseKind == nil || r.ResponseKind.Kind == "" {
					continue // only its subresources are served
				}
				group = append(group, Resource{
					GroupVersionResource: gv.WithResource(r.Resource),
					Kind:                 r.ResponseKind.Kind,
					Singular:             r.SingularResource,
					Namespaced:           r.Scope == apidiscoveryv2.ScopeNamespace,
					Verbs:                r.Verbs,
					ShortNames:           r.ShortNames,
					Categories:           r.Categories,
					Subresources:         subresources(gv, r.Subresources),
				})
			}
		}
		// The versions are in order of preference.
		prefer(group, "")
		all = append(all, group...)
	}
	return all, errors.Join(errs...)
}

func subresources(of schema.GroupVersion, all []apidiscoveryv2.APISubresourceDiscovery) []Subresource {
	var out []Subresource
	for _, s := range all {
		var kind metav1.GroupVersionKind
		if s.ResponseKind != nil {
			kind = *s.ResponseKind
		}
		out = append(out, subresource(of, s.Subresource, kind, s.Verbs))
	}
	return out
}

// subresource returns a subresource of a version. A kind without group and version is of
// the same version.
func subresource(of schema.GroupVersion, name string, kind metav1.GroupVersionKind, verbs []string) Subresource {
	if kind.Group == "" && kind.Version == "" {
		kind.Group, kind.Version = of.Group, of.Version
	}
	return Subresource{Name: name, GroupVersionKind: schema.GroupVersionKind(kind), Verbs: verbs}
}

// prefer marks one version of each of a group's resources: the group's preferred version
// or, if that lacks the resource, the first one that has it.
func prefer(group []Resource, version string) {
	chosen := map[string]int{}
	for i, r := range group {
		if _, ok := chosen[r.Resource]; !ok || r.Version == version {
			chosen[r.Resource] = i
		}
	}
	for _, i := range chosen {
		group[i].Preferred = true
	}
}

// coreGroup converts the response of /api, which has an older form, to a group.
func coreGroup(body []byte) (metav1.APIGroupList, error) {
	var versions metav1.APIVersions
	if err := json.Unmarshal(body, &versions); err != nil {
		return metav1.APIGroupList{}, err
	}
	group := metav1.APIGroup{}
	for _, v := range versions.Versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v, Version: v})
	}
	return metav1.APIGroupList{Groups: []metav1.APIGroup{group}}, nil
}

// discoverEach reads one version after the other, as servers before 1.26 require.
func (c *Cluster) discoverEach(ctx context.Context, groups []metav1.APIGroup) ([]Resource, error) {
	var all []Resource
	var errs []error
	for _, g := range groups {
		var group []Resource
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			list, err := c.discoverVersion(ctx, gv)
			if ctx.Err() != nil {
				return nil, err
			}
			if err != nil {
				errs = append(errs, &GroupError{GroupVersion: gv, Err: err})
				continue
			}
			group = append(group, resourcesOf(gv, list.APIResources)...)
			if len(all)+len(group) > maxResources {
				return nil, fmt.Errorf("discover in %s: there are more than %d resources", c.name, maxResources)
			}
		}
		prefer(group, g.PreferredVersion.Version)
		all = append(all, group...)
	}
	return all, errors.Join(errs...)
}

// resourcesOf returns the resources of a version. The list contains subresources as
// resources with both names.
func resourcesOf(gv schema.GroupVersion, list []metav1.APIResource) []Resource {
	below := map[string][]Subresource{}
	for _, r := range list {
		if name, sub, ok := strings.Cut(r.Name, "/"); ok {
			kind := metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
			below[name] = append(below[name], subresource(gv, sub, kind, r.Verbs))
		}
	}
	var all []Resource
	for _, r := range list {
		if strings.Contains(r.Name, "/") {
			continue
		}
		all = append(all, Resource{
			GroupVersionResource: gv.WithResource(r.Name),
			Kind:                 r.Kind,
			Singular:             r.SingularName,
			Namespaced:           r.Namespaced,
			Verbs:                r.Verbs,
			ShortNames:           r.ShortNames,
			Categories:           r.Categories,
			Subresources:         below[r.Name],
		})
	}
	return all
}

// discoverVersion returns the server's description of one version of a group.
func (c *Cluster) discoverVersion(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	err := c.document(ctx, c.discoveryRequest(runtime.ContentTypeJSON, versionPath(gv)...),
		func(body []byte, _ http.Header) error {
			return json.Unmarshal(body, list)
		})
	if err != nil {
		return nil, err
	}
	return list, nil
}
