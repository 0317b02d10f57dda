// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

const scaleName = "scale"

var (
	pods         = schema.GroupResource{Resource: "pods"}
	certificates = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
)

// copied reports whether what is below an object is made of the object alone, so that
// a copy of the object has it. Defined says whether definitions are mirrored.
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
		return defined && !routes(r.GroupVersionKind())
	}
	return false
}

// defines reports whether definitions are mirrored.
func defines(m *fleet.Member) bool {
	_, ok := m.Feed(definitions)
	return ok
}

// readable are resources without the subresources that no copy has.
func readable(all []kube.Resource, defined bool) []kube.Resource {
	some := slices.Clone(all)
	for i, r := range some {
		some[i].Subresources = slices.DeleteFunc(slices.Clone(r.Subresources), func(s kube.Subresource) bool { return !copied(r, s, defined) })
	}
	return some
}

// tableless reports whether the API server makes no tables of a subresource: it does
// of most, and of these it was forgotten.
func tableless(t target) bool {
	switch t.subresource {
	case "", scaleName:
		return false
	case "status":
		return slices.Contains([]string{"apiextensions.k8s.io", "apiregistration.k8s.io", "resource.k8s.io", "scheduling.k8s.io"}, t.Group)
	}
	return true
}

// subresourceRefusal is what is said to a request for something below an object that no
// copy has, nil if it may be answered. As the API server does, it looks only at the
// first part of what is below a custom object, and leaves only that.
func subresourceRefusal(m *fleet.Member, get bool, t *target, path string, where func() string) error {
	served := m.Served()
	i := slices.IndexFunc(served, func(r kube.Resource) bool { return r.GroupVersionResource == t.GroupVersionResource })
	if i < 0 {
		return missing(path) // it has just gone
	}
	r := served[i]
	name, _, deeper := strings.Cut(t.subresource, "/")
	own := routes(r.GroupVersionKind())
	if !own {
		t.subresource, deeper = name, false
	}
	j := slices.IndexFunc(r.Subresources, func(s kube.Subresource) bool { return s.Name == name })
	there := j >= 0
	switch {
	case there && !copied(r, r.Subresources[j], defines(m)) && slices.Contains(r.Subresources[j].Verbs, "get"):
		return notCopied(t.GroupResource(), name, where())
	case !get:
		return nil
	case !there && !own:
		return apierrors.NewNotFound(t.GroupResource(), t.name)
	case !there, deeper, t.watch && own:
		return missing(path)
	case t.watch:
		return apierrors.NewMethodNotSupported(t.GroupResource(), "watch")
	case !slices.Contains(r.Subresources[j].Verbs, "get"):
		return noMethod()
	}
	return nil
}
