// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/passthrough"
	"github.com/watershed-project/watershed/replica/internal/read"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// Request is a request as the replica understands it, parsed once. It is data only.
type Request struct {
	// Cluster is the name of the cluster that the request addresses, "" if it addresses the
	// fleet or the server itself.
	Cluster string
	// Member is the member that Cluster leads to, which may be an alias. It is nil if there
	// is none. The request is answered from this member, even if another one takes its name
	// meanwhile.
	Member *fleet.Member
	// Fleet means that the request addresses all clusters, below /fleet.
	Fleet bool
	// Path is the path below the root of the API that is addressed.
	Path string
	// Verb is that of the Kubernetes API: get, list, watch, create, update, patch, delete
	// or deletecollection. For a path that is not a resource it is the method in lower case.
	Verb string
	// IsResource means that the path is that of a resource, and that the following fields
	// are set.
	IsResource bool
	schema.GroupVersionResource
	// Namespace is "" for all namespaces and for resources without them.
	Namespace string
	// Name is "" for a list or a watch of many objects.
	Name string
	// Subresource is the rest of the path behind the name; for a custom object, its first
	// part.
	Subresource string
	// Query are the parameters of the request.
	Query url.Values

	// Passed means that the request is passed on to the cluster with the caller's own
	// credentials, see [Options.PassThrough]. The cluster decides about it.
	Passed bool
	// Started, which [Options.Admit] may set, is called when a watch has sent the objects that it
	// begins with, if it begins with any, and from then on only waits for changes.
	Started func()

	// trace follows the request, nil if it is not followed.
	trace Trace
	// late means that the copy does not have the writes of the user yet.
	late       bool
	attributes Attributes
	// access is what the caller may read. It is not nil in a request that a server has received.
	access *Access
	// leave ends the admission of the request, see [Options.Admit]; nil if there is none.
	leave func()
	// ends are the contexts that the request ends with if it is a watch.
	ends []context.Context
	// watchPath means that the path has the prefix watch, the old form of a watch.
	watchPath bool
}

// Attributes returns the attributes of the request.
func (q *Request) Attributes() Attributes { return q.attributes }

// CanSee reports whether the caller of a request below /fleet may read a member, see
// [Access.CanSee].
func (q *Request) CanSee(m *fleet.Member) bool {
	return q.access == nil || q.access.CanSee == nil || q.access.CanSee(m)
}

// parse returns what a request addresses. It looks up nothing.
func parse(r *http.Request) *Request {
	q := &Request{Path: r.URL.Path, Query: r.URL.Query(), access: everything}
	switch root, rest := cutRoot(r.URL.Path); root {
	case "clusters":
		if name, below, _ := strings.Cut(rest, "/"); name != "" {
			q.Cluster, q.Path = name, "/"+below
		}
	case "fleet":
		q.Fleet, q.Path = true, "/"+rest
	}
	q.parsePath()
	q.Verb = q.verb(r.Method)
	q.attributes = attributesOf(r.Method, q.Path, q.Query)
	return q
}

// cutRoot returns the first part of a path, and the rest.
func cutRoot(path string) (root, rest string) {
	root, rest, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return root, rest
}

// parsePath splits a path that begins with api or apis and names a resource.
func (q *Request) parsePath() {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(q.Path, "/"), "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		q.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		q.Group, q.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return
	}
	q.IsResource = true
	if parts[0] == "watch" && len(parts) > 1 {
		q.watchPath, parts = true, parts[1:]
	}
	// A namespace is a resource, and other resources are below it.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		q.Namespace, parts = parts[1], parts[2:]
	}
	q.Resource = parts[0]
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Subresource = strings.Join(parts[2:], "/")
	}
}

// verb returns the verb of a method.
func (q *Request) verb(method string) string {
	if !q.IsResource {
		return strings.ToLower(method)
	}
	switch verb := verbs[method]; {
	case verb == "get" && q.watches():
		return "watch"
	case verb == "get" && q.Name == "":
		return "list"
	case verb == "delete" && q.Name == "":
		return "deletecollection"
	case verb == "":
		return strings.ToLower(method)
	default:
		return verb
	}
}

// watches reports whether the request is a watch, if it is a read.
func (q *Request) watches() bool {
	return q.watchPath || q.Name == "" && respond.IsTrue(q.Query, "watch")
}

// reads reports whether the verb is that of a read.
func (q *Request) reads() bool { return q.Verb == "get" || q.Verb == "list" || q.Verb == "watch" }

// staysOpen reports whether the request takes as long as its client wants, as kube-apiserver
// judges it.
func (q *Request) staysOpen(r *http.Request) bool {
	switch q.attributes.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return q.attributes.Verb == "watch" || q.attributes.Verb == "proxy" || r.Header.Get("Upgrade") != ""
}

// changes reports whether the request may change objects of its resource.
func (q *Request) changes(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return q.IsResource && !q.staysOpen(r) && !slices.Contains(q.Query["dryRun"], metav1.DryRunAll)
	}
	return false
}

// passthroughRequest returns what is to be known about the request to pass it on.
func (q *Request) passthroughRequest(r *http.Request) *passthrough.Request {
	a := &q.attributes
	return &passthrough.Request{
		Path: q.Path, Query: q.Query, Verb: q.Verb, GroupVersionResource: q.GroupVersionResource,
		Namespace: q.Namespace, Name: q.Name, Subresource: q.Subresource, User: q.access.User,
		StaysOpen: q.staysOpen(r), Watch: a.Verb == "watch", Proxied: a.Subresource == "proxy" || a.Verb == "proxy",
		Changes: q.changes(r), Late: q.late, PassOn: q.passOn,
	}
}

// readRequest returns what is to be known about a request to read a resource from a view.
func (s *Server) readRequest(q *Request, resource kube.Resource, kind view.Kind, v view.View) *read.Request {
	one := &read.Request{
		GroupVersionResource: q.GroupVersionResource, Namespace: q.Namespace, Name: q.Name, Subresource: q.Subresource,
		Query: q.Query, Watch: q.watches(), WatchPath: q.watchPath, Resource: resource, Kind: kind, View: v,
		Ambient: q.access.Ambient, Ends: q.ends, Started: q.Started,
		Wait:   func() (end func()) { return q.phase(PhaseWait) },
		Select: func() (end func()) { return q.phase(PhaseSelect) },
	}
	if q.Member != nil {
		one.Cluster = q.Member.Name()
	}
	if t := s.opts.DeliveryTrace; t != nil && one.Watch {
		one.Delivery = func(cluster string, r schema.GroupResource, version uint64) (delivered func()) {
			if !t.Active() {
				return nil
			}
			return t.Delivery(cluster, r, version, q.trace)
		}
	}
	return one
}
