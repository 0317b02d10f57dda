// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EmptyGroup is the group of the custom types that have no objects.
const EmptyGroup = "empty.example.com"

// resource is a resource that every cluster serves.
type resource struct {
	schema.GroupVersionResource
	kind       string
	singular   string
	namespaced bool
	custom     bool // custom resources have no protobuf
	shortNames []string
	categories []string

	// pods and namespaces mark the resources that have objects; the others have none.
	pods, namespaces bool

	// blank is the JSON of an empty object besides its metadata. Bookmarks are empty
	// objects.
	blank string
}

// podResource is the index of the pods among the resources.
const podResource = 1

// newResources returns all resources, in the order of discovery.
func newResources(o Options) []resource {
	core := schema.GroupVersion{Version: "v1"}
	extensions := schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	registration := schema.GroupVersion{Group: "apiregistration.k8s.io", Version: "v1"}
	all := []resource{
		{
			GroupVersionResource: core.WithResource("namespaces"), kind: "Namespace", singular: "namespace",
			namespaces: true,
			shortNames: []string{"ns"},
			blank:      `,"spec":{},"status":{}`,
		},
		podResource: {
			GroupVersionResource: core.WithResource("pods"), kind: "Pod", singular: "pod", namespaced: true, pods: true,
			shortNames: []string{"po"}, categories: []string{"all"},
			blank: `,"spec":{"containers":null},"status":{}`,
		},
		{
			GroupVersionResource: registration.WithResource("apiservices"), kind: "APIService", singular: "apiservice",
			categories: []string{"api-extensions"},
			blank:      `,"spec":{"groupPriorityMinimum":0,"versionPriority":0},"status":{}`,
		},
		{
			GroupVersionResource: extensions.WithResource("customresourcedefinitions"),
			kind:                 "CustomResourceDefinition", singular: "customresourcedefinition",
			shortNames: []string{"crd", "crds"}, categories: []string{"api-extensions"},
			blank: `,"spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},` +
				`"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}`,
		},
	}
	empty := schema.GroupVersion{Group: EmptyGroup, Version: "v1"}
	for i := range o.Types {
		singular := fmt.Sprintf("empty%03d", i)
		all = append(all, resource{
			GroupVersionResource: empty.WithResource(singular + "s"), kind: fmt.Sprintf("Empty%03d", i),
			singular:   singular,
			namespaced: true, custom: true,
		})
	}
	return all
}

func (r *resource) objectType() metav1.TypeMeta {
	return metav1.TypeMeta{Kind: r.kind, APIVersion: r.GroupVersion().String()}
}

func (r *resource) listType(partial bool) metav1.TypeMeta {
	if partial {
		return metav1.TypeMeta{Kind: partialObjectList, APIVersion: partialType.APIVersion}
	}
	return metav1.TypeMeta{Kind: r.kind + "List", APIVersion: r.GroupVersion().String()}
}

// objects returns the range of objects in a namespace, by number.
func (r *resource) objects(p *population, namespace string) (lo, hi int) {
	switch {
	case r.pods:
		return p.within(namespace)
	case r.namespaces:
		return 0, len(p.namespaces)
	default:
		return 0, 0
	}
}

// key returns the key of object i, without the namespace if the request has one.
func (r *resource) key(p *population, namespace string, i int) string {
	if !r.pods {
		return p.namespaces[i]
	}
	if namespace != "" {
		return p.pods[i].name()
	}
	return p.pods[i].key
}

// from returns the first object whose key is not before key.
func (r *resource) from(p *population, namespace, key string) int {
	if r.pods {
		if namespace != "" {
			key = namespace + "/" + key
		}
		return p.from(key)
	}
	i := 0
	for ; i < len(p.namespaces) && p.namespaces[i] < key; i++ {
	}
	return i
}
