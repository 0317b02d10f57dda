// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// target is what a path below an API root names.
type target struct {
	schema.GroupVersionResource
	namespace   string
	name        string
	subresource string
	// watch is the old way to ask for a stream: in the path.
	watch bool
}

// parsePath takes a path apart that begins with api or apis, and reports false for
// any other and for one that names no resource.
func parsePath(path string) (target, bool) {
	var t target
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		t.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		t.Group, t.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "watch" && len(parts) > 1 {
		t.watch, parts = true, parts[1:]
	}
	// A namespace is a resource, and what others are in.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.Resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = strings.Join(parts[2:], "/")
	}
	return t, true
}

// verb is what a request would do.
func verb(r *http.Request, t target) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if t.name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return strings.ToLower(r.Method)
}
