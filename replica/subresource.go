// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/view"
)

var (
	pods         = schema.GroupResource{Resource: "pods"}
	certificates = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
)

// inCopy reports whether a subresource is made from the object alone, so that a copy of the
// object has it. The paths of the scale of a custom object are in its definition: definitions
// means that those are mirrored.
func inCopy(r kube.Resource, s kube.Subresource, definitions bool) bool {
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
		return definitions && !isBuiltin(r.GroupVersionKind())
	}
	return false
}

// mirrorsDefinitions reports whether the CustomResourceDefinitions of a member are mirrored.
func mirrorsDefinitions(m *fleet.Member) bool {
	_, ok := m.Feed(view.Definitions)
	return ok
}

// withCopied returns resources with the subresources that a copy has, and without others.
func withCopied(all []kube.Resource, definitions bool) []kube.Resource {
	some := slices.Clone(all)
	for i, r := range some {
		some[i].Subresources = slices.DeleteFunc(slices.Clone(r.Subresources), func(s kube.Subresource) bool { return !inCopy(r, s, definitions) })
	}
	return some
}
