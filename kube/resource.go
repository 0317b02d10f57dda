// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import "k8s.io/apimachinery/pkg/runtime/schema"

// Resource is a resource that a cluster serves.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Singular   string
	Namespaced bool
	Verbs      []string
	ShortNames []string
	Categories []string
	// Preferred marks the version of the resource that the server prefers.
	Preferred bool
	// Subresources are the subresources of the resource's objects, in the server's order:
	// about 10 KB for a whole cluster.
	Subresources []Subresource
}

// Subresource is a subresource of an object, such as its status.
type Subresource struct {
	Name string
	// GroupVersionKind is the type in which it is read and written. Its version is that
	// of the resource unless the server sends another one.
	schema.GroupVersionKind
	Verbs []string
}

// GroupVersionKind returns the type of the resource's objects.
func (r Resource) GroupVersionKind() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(r.Kind)
}
