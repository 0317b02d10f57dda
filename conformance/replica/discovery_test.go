// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"maps"
	"slices"
	"strings"
)

// promised are the verbs of a replica.
var promised = []any{"get", "list", "watch"}

// reviews are the resources, by group, that the program answers itself. They can only be
// created.
var reviews = map[string][]string{
	"authentication.k8s.io": {"selfsubjectreviews"},
	"authorization.k8s.io":  {"selfsubjectaccessreviews", "selfsubjectrulesreviews"},
}

// isReview reports whether a resource of a discovery document is one of reviews.
func isReview(r map[string]any) bool {
	for _, names := range reviews {
		if slices.Contains(names, text(r, "name")) || slices.Contains(names, text(r, "resource")) {
			return true
		}
	}
	return false
}

// connected are subresources that the server forwards: to kubelets, and to what runs
// there.
var connected = []string{"attach", "exec", "log", "portforward", "proxy"}

// restrict reduces a discovery document to what a replica promises: resources that can be
// listed and watched, each in the one version that is mirrored, their subresources that
// can be read and are made from the object, only the verbs that read, and no
// storageVersionHash, which only the server can compute. The resources of a version are
// sorted by name: the server lists custom ones in any order. Any other value is returned
// unchanged.
func (c *catalogue) restrict(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	m = maps.Clone(m)
	switch m["kind"] {
	case "APIGroupDiscoveryList":
		m["items"] = each(m["items"], c.aggregatedGroup)
	case "APIGroupList":
		m["groups"] = each(m["groups"], c.group)
	case "APIGroup":
		if g := c.group(m); g != nil {
			return g
		}
	case "APIResourceList":
		group, version := splitVersion(text(m, "groupVersion"))
		m["resources"] = each(m["resources"], func(r map[string]any) map[string]any {
			name, sub, below := strings.Cut(text(r, "name"), "/")
			if !c.has(group, version, name) {
				return nil
			}
			if below {
				return readOnlySubresource(r, sub)
			}
			delete(r, "storageVersionHash")
			return readOnly(r)
		})
		sortBy(m["resources"], "name")
	}
	return m
}

// each applies f to copies of a list's maps and drops those that become nil.
func each(list any, f func(map[string]any) map[string]any) any {
	in, ok := list.([]any)
	if !ok {
		return list
	}
	out := []any{}
	for _, item := range in {
		if m := f(maps.Clone(item.(map[string]any))); m != nil {
			out = append(out, m)
		}
	}
	return out
}

func (c *catalogue) aggregatedGroup(g map[string]any) map[string]any {
	group := text(g, "metadata", "name")
	g["versions"] = each(g["versions"], func(v map[string]any) map[string]any {
		version := text(v, "version")
		if !c.has(group, version, "") {
			return nil
		}
		if v["resources"] == nil {
			return v // its server does not respond
		}
		v["resources"] = each(v["resources"], func(r map[string]any) map[string]any {
			if !c.has(group, version, text(r, "resource")) {
				return nil
			}
			if below, ok := each(r["subresources"], func(s map[string]any) map[string]any {
				return readOnlySubresource(s, text(s, "subresource"))
			}).([]any); ok {
				r["subresources"] = below
				if len(below) == 0 {
					delete(r, "subresources")
				}
			}
			return readOnly(r)
		})
		sortBy(v["resources"], "resource")
		return v
	})
	if len(g["versions"].([]any)) == 0 {
		return nil
	}
	return g
}

func (c *catalogue) group(g map[string]any) map[string]any {
	group := text(g, "name")
	kept := each(g["versions"], func(v map[string]any) map[string]any {
		if !c.has(group, text(v, "version"), "") {
			return nil
		}
		return v
	}).([]any)
	if len(kept) == 0 {
		return nil
	}
	g["versions"] = kept
	if !slices.ContainsFunc(kept, func(v any) bool {
		return text(v, "version") == text(g, "preferredVersion", "version")
	}) {
		g["preferredVersion"] = kept[0]
	}
	return g
}

// sortBy sorts a list of maps by a string member. Subresources stay after their resource,
// in their order.
func sortBy(list any, name string) {
	key := func(v any) string {
		resource, _, _ := strings.Cut(text(v, name), "/")
		return resource
	}
	if items, ok := list.([]any); ok {
		slices.SortStableFunc(items, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	}
}

// sorted returns a copy's discovery document with its resources in the order of restrict,
// and without those that it does not mirror, which have no verbs.
func sorted(v any) any {
	mirrored := func(r map[string]any) map[string]any {
		if verbs, _ := r["verbs"].([]any); len(verbs) == 0 {
			return nil
		}
		return r
	}
	switch text(v, "kind") {
	case "APIResourceList":
		only(v.(map[string]any), mirrored)
	case "APIGroupDiscoveryList":
		groups, _ := at(v, "items").([]any)
		for _, g := range groups {
			versions, _ := at(g, "versions").([]any)
			for _, version := range versions {
				only(version.(map[string]any), mirrored)
			}
		}
	}
	return ordered(v)
}

// ordered returns a discovery document with its resources in the order of restrict.
func ordered(v any) any {
	switch text(v, "kind") {
	case "APIResourceList":
		sortBy(at(v, "resources"), "name")
	case "APIGroupDiscoveryList":
		groups, _ := at(v, "items").([]any)
		for _, g := range groups {
			versions, _ := at(g, "versions").([]any)
			for _, version := range versions {
				sortBy(at(version, "resources"), "resource")
			}
		}
	}
	return v
}

func readOnly(r map[string]any) map[string]any {
	if isReview(r) {
		return r
	}
	verbs, _ := r["verbs"].([]any)
	r["verbs"] = slices.DeleteFunc(slices.Clone(verbs), func(v any) bool { return !slices.Contains(promised, v) })
	return r
}

// readOnlySubresource is readOnly for a subresource. It returns nil if the replica does
// not have it.
func readOnlySubresource(r map[string]any, name string) map[string]any {
	verbs, _ := readOnly(r)["verbs"].([]any)
	if len(verbs) == 0 || slices.Contains(connected, name) {
		return nil
	}
	return r
}

func splitVersion(s string) (group, version string) {
	group, version, ok := strings.Cut(s, "/")
	if !ok {
		return "", s
	}
	return group, version
}

// only keeps the resources of a document for which a function returns a value. A document
// of a server that does not respond has none.
func only(document map[string]any, keep func(map[string]any) map[string]any) {
	if resources, ok := document["resources"]; ok {
		document["resources"] = each(resources, keep)
	}
}
