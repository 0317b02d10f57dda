// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// served is a resource in one version.
type served struct {
	group, version, resource, kind string
	namespaced                     bool
	mirrored                       bool // a replica has it in this version
	// below are the subresources that can be read and are made from the object.
	below []string
}

// root returns the path of the version.
func (s served) root() string {
	if s.group == "" {
		return "/api/" + s.version
	}
	return "/apis/" + s.group + "/" + s.version
}

// path returns the path of the collection in all namespaces.
func (s served) path() string { return s.root() + "/" + s.resource }

// in returns the path of the collection in a namespace.
func (s served) in(namespace string) string {
	if !s.namespaced {
		return s.path()
	}
	return s.root() + "/namespaces/" + namespace + "/" + s.resource
}

// catalogue has the resources of a server that can be listed and watched, in its order.
type catalogue struct {
	all []served
	// stale are the versions of groups whose servers do not respond.
	stale []schema.GroupVersion
}

const aggregatedAccept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// newCatalogue reads the resources of the server. The first version of a resource is
// mirrored, which is the preferred one that has it.
func newCatalogue(ctx context.Context, s *subject) (*catalogue, error) {
	c := &catalogue{}
	for _, root := range []string{"/api", "/apis"} {
		a := s.send(ctx, request{Method: "GET", URI: root, Accept: aggregatedAccept})
		if a.err != nil || a.code != 200 {
			return nil, fmt.Errorf("discover %s: %d %w", root, a.code, a.err)
		}
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(a.body, &list); err != nil {
			return nil, fmt.Errorf("discover %s: %w", root, err)
		}
		for _, g := range list.Items {
			c.add(g)
		}
	}
	return c, nil
}

func (c *catalogue) add(g apidiscoveryv2.APIGroupDiscovery) {
	seen := map[string]bool{}
	for _, v := range g.Versions {
		if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
			c.stale = append(c.stale, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
		for _, r := range v.Resources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") || r.ResponseKind == nil {
				continue
			}
			var below []string
			for _, s := range r.Subresources {
				if slices.Contains(s.Verbs, "get") && !slices.Contains(connected, s.Subresource) {
					below = append(below, s.Subresource)
				}
			}
			c.all = append(c.all, served{
				group: g.Name, version: v.Version, resource: r.Resource, kind: r.ResponseKind.Kind,
				namespaced: r.Scope == apidiscoveryv2.ScopeNamespace, mirrored: !seen[r.Resource], below: below,
			})
			seen[r.Resource] = true
		}
	}
}

// mirrored returns the resources that a replica has.
func (c *catalogue) mirrored() []served {
	var out []served
	for _, s := range c.all {
		if s.mirrored {
			out = append(out, s)
		}
	}
	return out
}

// paths returns the paths of all mirrored resources.
func (c *catalogue) paths() []string {
	var out []string
	for _, s := range c.mirrored() {
		out = append(out, s.path())
	}
	return out
}

// has reports whether a version has a resource that is mirrored in it, or might have one:
// the resources of a stale version are not known.
func (c *catalogue) has(group, version, resource string) bool {
	if resource == "" && slices.Contains(c.stale, schema.GroupVersion{Group: group, Version: version}) {
		return true
	}
	if at := reviews[group]; version == "v1" && len(at) > 0 && (resource == "" || slices.Contains(at, resource)) {
		return true
	}
	return slices.ContainsFunc(c.all, func(s served) bool {
		return s.mirrored && s.group == group && s.version == version && (resource == "" || s.resource == resource)
	})
}
