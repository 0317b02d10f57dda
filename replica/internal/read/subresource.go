// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/wire"
)

var (
	pods         = schema.GroupResource{Resource: "pods"}
	certificates = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
)

// InCopy reports whether a subresource is made from the object alone, so that a copy of the
// object has it. The paths of the scale of a custom object are in its definition: definitions
// means that those are mirrored.
func InCopy(r kube.Resource, s kube.Subresource, definitions bool) bool {
	if !slices.Contains(s.Verbs, "get") {
		return false
	}
	returnsObject := s.GroupVersionKind == r.GroupVersionKind()
	switch s.Name {
	case "status":
		return returnsObject
	case "ephemeralcontainers", "resize":
		return returnsObject && r.GroupResource() == pods
	case "approval":
		return returnsObject && r.GroupResource() == certificates
	case scaleName:
		if s.GroupVersionKind != scaleKind.GroupVersionKind {
			return false
		}
		if kind := goKind(r); kind != nil {
			_, err := scaleOf(kind.New(), nil)
			return err == nil
		}
		return definitions && !IsBuiltin(r.GroupVersionKind())
	}
	return false
}

// WithCopied returns resources with the subresources that a copy has, and without others.
func WithCopied(all []kube.Resource, definitions bool) []kube.Resource {
	some := slices.Clone(all)
	for i, r := range some {
		missing := func(s kube.Subresource) bool { return !InCopy(r, s, definitions) }
		some[i].Subresources = slices.DeleteFunc(slices.Clone(r.Subresources), missing)
	}
	return some
}

// goKind returns the kind of a resource if it has a Go type, and nil otherwise.
func goKind(r kube.Resource) *wire.Kind {
	kind, ok := kube.KindOf(r.GroupVersionResource)
	if !ok || kind.Kind != r.Kind {
		return nil
	}
	return kind
}

// IsBuiltin reports whether kube-apiserver serves a kind itself, and not by a definition.
func IsBuiltin(kind schema.GroupVersionKind) bool {
	return !encode.IsCustom(kind) || kube.IsBuiltin(kind.Group)
}
