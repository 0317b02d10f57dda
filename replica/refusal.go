// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/read"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// missing returns the 404 for an unknown path, in the form that its owner would use.
func missing(path string) error {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case len(parts) > 1 && parts[0] == "api":
		return status.NoPath()
	case len(parts) > 2 && parts[0] == "apis":
		if read.IsBuiltin(schema.GroupVersionKind{Group: parts[1]}) {
			return status.NoPath()
		}
	}
	return status.ErrNoPage
}

// refusal returns the error for a request that no copy of a resource can answer, nil if a
// copy may. Where returns the address that the client should use instead.
func refusal(m *fleet.Member, resource kube.Resource, r *http.Request, q *Request, where func() string) error {
	get := r.Method == http.MethodGet
	switch {
	case r.Method == http.MethodHead || r.Method == http.MethodOptions:
		return status.NoMethod()
	case get && (q.Namespace != "" && !resource.Namespaced || resource.Namespaced && q.Namespace == "" && q.Name != ""):
		return missing(q.Path)
	}
	if q.Subresource != "" {
		if err := subresourceRefusal(m, get, q, where); err != nil {
			return err
		}
		if q.Name == "" {
			// Its attributes have the subresource, and a list would have whole objects.
			return apierrors.NewBadRequest("name must be provided")
		}
	}
	if !get {
		return status.ReadOnly(q.GroupResource(), q.Verb, where())
	}
	return nil
}

// notMirrored returns the error for a request for a resource that the cluster serves and
// the replica does not mirror.
func notMirrored(q *Request, where func() string) error {
	if !q.reads() {
		return status.ReadOnly(q.GroupResource(), q.Verb, where())
	}
	return status.NotMirrored(q.GroupResource(), q.Name, where())
}

// otherVersion returns the error for a request for a resource that the copy has in another
// version than the requested one.
func otherVersion(q *Request, version string, where func() string) error {
	if !q.reads() {
		return status.ReadOnly(q.GroupResource(), q.Verb, where())
	}
	return status.OtherVersion(q.GroupVersionResource, version, where())
}

// isResourceOf returns whether a resource is that of a request.
func isResourceOf(q *Request) func(kube.Resource) bool {
	return func(r kube.Resource) bool { return r.GroupVersionResource == q.GroupVersionResource }
}

// subresourceRefusal returns the error for a request for a subresource that no copy has, nil
// if a copy may. As kube-apiserver does, it looks only at the first part of the path below a
// custom object, and drops the rest.
func subresourceRefusal(m *fleet.Member, get bool, q *Request, where func() string) error {
	served := m.Served()
	i := slices.IndexFunc(served, isResourceOf(q))
	if i < 0 {
		return missing(q.Path) // it has just been removed
	}
	r := served[i]
	name, _, deeper := strings.Cut(q.Subresource, "/")
	own := read.IsBuiltin(r.GroupVersionKind())
	if !own {
		q.Subresource, deeper = name, false
	}
	j := slices.IndexFunc(r.Subresources, func(s kube.Subresource) bool { return s.Name == name })
	exists := j >= 0
	switch {
	case exists && !read.InCopy(r, r.Subresources[j], view.MirrorsDefinitions(m)) &&
		slices.Contains(r.Subresources[j].Verbs, "get"):
		return status.NotCopied(q.GroupResource(), name, where())
	case !get:
		return nil
	case !exists && !own:
		return apierrors.NewNotFound(q.GroupResource(), q.Name)
	case !exists, deeper, q.watchPath && own:
		return missing(q.Path)
	case q.watchPath:
		return apierrors.NewMethodNotSupported(q.GroupResource(), "watch")
	case !slices.Contains(r.Subresources[j].Verbs, "get"):
		return status.NoMethod()
	}
	return nil
}
