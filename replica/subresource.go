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

// copied reports whether a subresource is made from the object alone, so that a copy of the
// object has it. Defined means that definitions are mirrored.
func copied(r kube.Resource, s kube.Subresource, defined bool) bool {
	if !slices.Contains(s.Verbs, "get") {
		return false
	}
	whole := s.GroupVersionKind == r.GroupVersionKind()
	switch s.Name {
	case "status":
		return whole
	case "ephemeralcontainers", "resize":
		return whole && r.GroupResource() == pods
	case "approval":
		return whole && r.GroupResource() == certificates
	case scaleName:
		if s.GroupVersionKind != scaleKind.GroupVersionKind {
			return false
		}
		if kind := builtin(r); kind != nil {
			_, err := scaleOf(kind.New(), nil)
			return err == nil
		}
		return defined && !isOwn(r.GroupVersionKind())
	}
	return false
}

// mirrorsDefinitions reports whether the CustomResourceDefinitions of a member are mirrored.
func mirrorsDefinitions(m *fleet.Member) bool {
	_, ok := m.Feed(view.Definitions)
	return ok
}

// readable returns resources without the subresources that no copy has.
func readable(all []kube.Resource, defined bool) []kube.Resource {
	some := slices.Clone(all)
	for i, r := range some {
		some[i].Subresources = slices.DeleteFunc(slices.Clone(r.Subresources), func(s kube.Subresource) bool { return !copied(r, s, defined) })
	}
	return some
}
