// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica/internal/respond"
)

// Attributes are the parts of a request that decide whether it is allowed, with the values
// that kube-apiserver uses. Some differ from the fields of [Request]: a request for a
// namespace has that namespace, and the subresource is only the first part of the path below
// the object.
type Attributes struct {
	// Verb is "" for a resource and a method that the Kubernetes API does not have.
	Verb string
	// Path is the path below the root of the API that is addressed.
	Path string
	// IsResource means that the path is that of a resource, and that the following fields
	// are set.
	IsResource                                             bool
	Group, Version, Resource, Subresource, Namespace, Name string
	// FieldSelector and LabelSelector are those of a list or a watch, unless the path has
	// the prefix watch.
	FieldSelector, LabelSelector string
}

// attributesOf returns the attributes of a request for a path below the root of an API.
func attributesOf(method, path string, query url.Values) Attributes {
	a := Attributes{Verb: strings.ToLower(method), Path: path}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		a.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		a.Group, a.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return a
	}
	a.IsResource = true
	prefixed := parts[0] == "watch" || parts[0] == "proxy"
	switch {
	case prefixed && len(parts) == 1:
		return a // kube-apiserver answers this with an error
	case prefixed:
		a.Verb, parts = parts[0], parts[1:]
	default:
		a.Verb = verbs[method]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		a.Namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	a.Resource = parts[0]
	if len(parts) > 1 {
		a.Name = parts[1]
	}
	if len(parts) > 2 && a.Verb != "proxy" {
		a.Subresource = parts[2]
	}
	a.refineVerb(query)
	if !prefixed && (a.Verb == "list" || a.Verb == "watch" || a.Verb == "deletecollection") {
		a.FieldSelector, a.LabelSelector = query.Get("fieldSelector"), query.Get("labelSelector")
	}
	return a
}

// verbs has the verb of each method for one object.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// refineVerb replaces the verb of a request without a name. A list or a watch that selects
// one object by its name has that name.
func (a *Attributes) refineVerb(query url.Values) {
	if a.Name != "" {
		return
	}
	switch a.Verb {
	case "delete":
		a.Verb = "deletecollection"
	case "get":
		var opts internalversion.ListOptions
		if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &opts); err != nil {
			opts = internalversion.ListOptions{Watch: respond.IsTrue(query, "watch")}
		}
		a.Verb = "list"
		if opts.Watch {
			a.Verb = "watch"
		}
		if opts.FieldSelector != nil {
			name, ok := opts.FieldSelector.RequiresExactMatch("metadata.name")
			if ok && len(content.IsPathSegmentName(name)) == 0 {
				a.Name = name
			}
		}
	}
}
