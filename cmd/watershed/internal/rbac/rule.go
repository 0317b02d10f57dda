// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/watershed-project/watershed/replica"
)

// wildcard matches every verb, API group, resource or path.
const wildcard = "*"

// ruleAllows reports whether a rule allows a request.
func ruleAllows(rule *rbacv1.PolicyRule, a *replica.Attributes) bool {
	if !matches(rule.Verbs, a.Verb) {
		return false
	}
	if !a.IsResource {
		return slices.ContainsFunc(rule.NonResourceURLs, func(pattern string) bool {
			return pathMatches(pattern, a.Path)
		})
	}
	return matches(rule.APIGroups, a.Group) &&
		slices.ContainsFunc(rule.Resources, func(pattern string) bool {
			return resourceMatches(pattern, a.Resource, a.Subresource)
		}) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.Name))
}

// matches reports whether a list has a value or the wildcard.
func matches(list []string, value string) bool {
	return slices.ContainsFunc(list, func(item string) bool { return item == wildcard || item == value })
}

// resourceMatches reports whether a pattern is the wildcard, which includes subresources, the
// resource with its subresource, or */subresource. The pattern pods/* does not match
// any subresource, and pods does not include those of pods.
func resourceMatches(pattern, resource, subresource string) bool {
	switch {
	case pattern == wildcard:
		return true
	case subresource == "":
		return pattern == resource
	}
	rest, ok := strings.CutSuffix(pattern, subresource)
	if !ok {
		return false
	}
	rest, ok = strings.CutSuffix(rest, "/")
	return ok && (rest == wildcard || rest == resource)
}

// pathMatches reports whether a pattern is the wildcard, the path, or a prefix of it with a
// wildcard at the end. Several wildcards at the end are one.
func pathMatches(pattern, path string) bool {
	if pattern == wildcard || pattern == path {
		return true
	}
	return strings.HasSuffix(pattern, wildcard) && strings.HasPrefix(path, strings.TrimRight(pattern, wildcard))
}
