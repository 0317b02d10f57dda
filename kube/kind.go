// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/wire"
)

// KindOf returns the kind of a built-in resource: one with a Go type in k8s.io/api, which
// every API server can encode as protobuf. There is one Kind per resource.
func KindOf(resource schema.GroupVersionResource) (*wire.Kind, bool) {
	kind, ok := builtin().kinds[resource]
	return kind, ok
}

// ResourceOf returns the built-in resource of value's type, a pointer such as
// *corev1.Pod, which may be nil.
func ResourceOf(value any) (schema.GroupVersionResource, *wire.Kind, bool) {
	resource, ok := builtin().resources[reflect.TypeOf(value)]
	if !ok {
		return schema.GroupVersionResource{}, nil, false
	}
	return resource, builtin().kinds[resource], true
}

// IsBuiltin reports whether a group has built-in resources, in any version.
func IsBuiltin(group string) bool { return builtin().groups[group] }

type builtins struct {
	groups    map[string]bool
	kinds     map[schema.GroupVersionResource]*wire.Kind
	resources map[reflect.Type]schema.GroupVersionResource
}

// builtin reads client-go's scheme. It ignores types that the program registered there:
// the result would depend on initialization order, and their names and resources need not
// follow the naming rules.
var builtin = sync.OnceValue(func() builtins {
	b := builtins{
		groups:    map[string]bool{},
		kinds:     map[schema.GroupVersionResource]*wire.Kind{},
		resources: map[reflect.Type]schema.GroupVersionResource{},
	}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		pointer := reflect.PointerTo(t)
		if !strings.HasPrefix(t.PkgPath(), "k8s.io/api/") || !pointer.Implements(reflect.TypeFor[metav1.Object]()) {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		b.groups[gvk.Group] = true
		b.kinds[resource] = &wire.Kind{
			GroupVersionKind: gvk,
			New:              func() runtime.Object { return reflect.New(t).Interface().(runtime.Object) },
		}
		b.resources[pointer] = resource
	}
	return b
})
