// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/past"
)

// ReadsPast reports whether a request is for a state of the past, or for changes. Then files are
// read: all objects of the resource, or the log of the one that the request names.
func (q *Request) ReadsPast() bool {
	return q.IsResource && (q.Verb == "get" || q.Verb == "list" || q.Verb == "watch") && past.IsRequested(q.Query)
}

// asksForSummary reports whether a request is for the numbers of changes.
func (q *Request) asksForSummary(r *http.Request) bool {
	return q.Path == document.ChangesPath && r.Method == http.MethodGet
}

// pastRequest returns what is to be known about a request to read the past.
func (s *Server) pastRequest(r *http.Request, q *Request) *past.Request {
	p := &past.Request{
		GroupVersionResource: q.GroupVersionResource, Verb: q.Verb, Namespace: q.Namespace, Name: q.Name,
		Subresource: q.Subresource, Query: q.Query, Fleet: q.Fleet, User: q.access.User,
		AllowedNamespace: q.attributes.Namespace, AllowedName: q.attributes.Name,
	}
	if s.opts.Authorize != nil {
		p.Rights = &pastRights{s.opts.Authorize, r, q}
	}
	return p
}

// pastRights asks [Options.Authorize] what the caller of a request may read. It implements [past.Rights].
type pastRights struct {
	authorize func(*http.Request, *Request) (*Access, error)
	r         *http.Request
	q         *Request
}

// AllNamespaces implements [past.Rights].
func (p *pastRights) AllNamespaces() error {
	_, err := p.authorize(p.r, p.q.wide())
	return err
}

// AllNamespacesIn implements [past.Rights].
func (p *pastRights) AllNamespacesIn() (func(*fleet.Member) bool, error) {
	return p.seenIn(p.q.wide())
}

// ListIn implements [past.Rights].
func (p *pastRights) ListIn(resource schema.GroupVersionResource) (func(*fleet.Member) bool, error) {
	return p.seenIn(listOf(p.q, resource))
}

// seenIn returns a function that reports in which members the caller may send a request. Members
// that do not decide count as members that refuse, below /fleet also if no other member decides.
func (p *pastRights) seenIn(q *Request) (func(*fleet.Member) bool, error) {
	access, err := p.authorize(p.r, q)
	switch {
	case apierrors.IsForbidden(err), q.Fleet && apierrors.IsServiceUnavailable(err):
		return func(*fleet.Member) bool { return false }, nil
	case err != nil:
		return nil, err
	case !q.Fleet || access == nil || access.CanSee == nil:
		return func(*fleet.Member) bool { return true }, nil
	}
	return access.CanSee, nil
}

// wide returns the request for all namespaces.
func (q *Request) wide() *Request {
	wide := *q
	wide.attributes.Namespace, wide.Namespace = "", ""
	return &wide
}

// listOf returns a list of a resource in all namespaces of what a request addresses.
func listOf(q *Request, resource schema.GroupVersionResource) *Request {
	path := kube.APIPath(resource.GroupVersion()) + "/" + resource.Resource
	list := &Request{Cluster: q.Cluster, Member: q.Member, Fleet: q.Fleet, Path: path, Query: url.Values{}}
	list.parsePath()
	list.Verb = "list"
	list.attributes = attributesOf(http.MethodGet, list.Path, list.Query)
	return list
}
