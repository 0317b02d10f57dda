// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/discovery"
	"github.com/watershed-project/watershed/replica/internal/openapi"
	"github.com/watershed-project/watershed/replica/internal/passthrough"
	"github.com/watershed-project/watershed/replica/internal/read"
	"github.com/watershed-project/watershed/replica/internal/requestmetrics"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// clusterAPI is the API of one member. It embeds the server for what all APIs share.
type clusterAPI struct {
	*Server
	member  *fleet.Member
	direct  *passthrough.OriginReads
	traffic requestmetrics.Cluster
	// pass is nil unless requests are passed on.
	pass *passthrough.Forwarder
	// missed are changes that the copies of the member do not have.
	missed  *view.Missed
	openapi *openapi.Documents
	kinds   view.Kinds

	// mu guards the fields below: the discovery documents, and what they are made from.
	mu         sync.Mutex
	served     []kube.Resource
	unmirrored []kube.Resource
	stale      []schema.GroupVersion
	versions   []schema.GroupVersion
	documents  *discovery.Documents
}

func newClusterAPI(s *Server, m *fleet.Member) *clusterAPI {
	c := &clusterAPI{
		Server: s, member: m, openapi: openapi.New(m.Cluster, nil),
		direct: passthrough.NewOriginReads(m, &s.tracker, s.opts.originLimits()), missed: view.NewMissed(),
	}
	if s.opts.PassThrough {
		c.pass = passthrough.New(m, &s.tracker, s.written, s.opts.passedLimits(), s.notes, s.opts.Logger)
	}
	return c
}

func (c *clusterAPI) unknown() error {
	if c.member.Discovered() {
		return nil
	}
	return view.Unreachable([]*fleet.Member{c.member}, "")
}

// schemas returns the OpenAPI documents, which are outdated if discovery has changed.
func (c *clusterAPI) schemas() *openapi.Documents {
	c.discovery()
	return c.openapi
}

func (c *clusterAPI) discovery() *discovery.Documents {
	served, unmirrored := c.member.Served(), c.member.Unmirrored()
	stale, versions := c.member.Stale(), c.member.Versions()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.documents == nil || !reflect.DeepEqual(served, c.served) || !reflect.DeepEqual(unmirrored, c.unmirrored) ||
		!slices.Equal(stale, c.stale) || !slices.Equal(versions, c.versions) {
		copied := read.WithCopied(served, view.MirrorsDefinitions(c.member))
		c.documents = discovery.New(copied, unmirrored, stale, versions)
		c.served = served
		c.unmirrored = unmirrored
		c.stale = stale
		c.versions = versions
		c.openapi.Changed()
	}
	return c.documents
}

// read answers a request for a resource: it locates the copy, refuses what no copy can answer, reads from the
// cluster itself if the client wants that, reads the past, or else waits for the writes of the user and serves
// the copy.
func (c *clusterAPI) read(w http.ResponseWriter, r *http.Request, q *Request) error {
	var limits view.Limits
	feed, err := c.locate(q, &limits)
	switch {
	case err != nil:
		return err
	case feed == nil || feed.Resource().Version != q.Version:
		return c.absent(w, q, feed)
	}
	if err := refusal(c.member, feed.Resource(), r, q, c.where(q)); err != nil {
		return err
	}
	if passthrough.WantsOrigin(r, q.Query) && !q.ReadsPast() {
		return c.direct.Serve(w, r, q.passthroughRequest(r), q.watches(), q.ends)
	}
	if err := limits.RefusePart(q.GroupResource(), q.Namespace, q.Name); err != nil {
		return err
	}
	warning.Add(w.Header(), limits.Warnings()...)
	if err := view.Unread(c.member, feed); err != nil {
		return err
	}
	reading := c.past.Cluster(c.member, r, c.pastRequest(r, q), feed)
	defer reading.End()
	source := view.OfCluster(c.member, feed, reading.Gate(), c.missed)
	if q.ReadsPast() {
		// It is never passed on, because a cluster has no past.
		return reading.Serve(w, source, func(v view.View) error { return c.serveView(w, r, q, feed.Resource(), v) })
	}
	if c.mustPass(r, q, feed) {
		return c.passLate(w, r, q)
	}
	return c.serveCopy(w, r, q, feed, source)
}

// locate returns the copy of the resource of a request, in any version, nil if there is none. It notes in limits which
// part is missing from the copy, and returns an error if all of it is.
func (c *clusterAPI) locate(q *Request, limits *view.Limits) (*history.Feed, error) {
	out := limits.LeaveOut(c.member, q.GroupVersionResource, q.Namespace)
	feed, ok := c.member.Feed(q.GroupResource())
	switch {
	case ok:
		return feed, nil
	case out:
		return nil, limits.Refuse(q.GroupResource(), q.Name)
	}
	return nil, nil
}

// mustPass waits until the copy has the writes of the user, and reports whether the cluster must answer nevertheless.
// The cluster also answers a page at a version that the copy has not reached: the copy of an idle resource reaches it
// only with the next bookmark.
func (c *clusterAPI) mustPass(r *http.Request, q *Request, feed *history.Feed) bool {
	if c.pass == nil || q.access.NoPassThrough != "" {
		return false
	}
	if now, err := feed.Now(); err == nil && view.ContinueVersion(q.Query.Get("continue")) > now.Version {
		return true
	}
	end := q.phase(PhaseWait)
	q.late = !c.pass.Wait(r.Context(), q.access.User, feed)
	end()
	return q.late || mustBeNewest(feed, r, q)
}

// serveCopy answers from the copy, with headers about its age. A request that turns out to be beyond the copy is passed
// on.
func (c *clusterAPI) serveCopy(
	w http.ResponseWriter, r *http.Request, q *Request, feed *history.Feed, source view.View,
) error {
	var fresh freshness.Freshness
	fresh.Add(c.member.Name(), feed.Connection())
	fresh.Write(w.Header())
	if c.pass != nil && q.access.NoPassThrough == "" {
		c.warnOfPeers(w.Header())
	}
	err := c.serveView(w, r, q, feed.Resource(), source)
	if err == nil || c.pass == nil || q.access.NoPassThrough != "" || !isBeyondCopy(q, err) {
		return err
	}
	// The headers that describe the copy.
	w.Header().Del(freshness.Header)
	w.Header().Del("Warning")
	if c.passLate(w, r, q) != nil {
		q.Passed = false
		return err // the client can go on without the cluster
	}
	return nil
}

// absent answers a request for a resource without a copy in the requested version. Feed is the
// copy in another version, nil if there is none. A version that the cluster serves is 503 and
// not 404: an informer takes 404 for the end of the resource, and its objects for deleted.
func (c *clusterAPI) absent(w http.ResponseWriter, q *Request, feed *history.Feed) error {
	if err := c.unknown(); err != nil {
		return err // the last state of the cluster has just been dropped
	}
	switch {
	case slices.Contains(c.member.Stale(), q.GroupVersion()):
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return nil
	case slices.ContainsFunc(c.member.Unmirrored(), isResourceOf(q)):
		return notMirrored(q, c.where(q))
	case feed != nil && c.member.Lists(q.GroupVersionResource, ""):
		return otherVersion(q, feed.Resource().Version, c.where(q))
	}
	return missing(q.Path)
}

// serveView answers a read of a view.
func (c *clusterAPI) serveView(
	w http.ResponseWriter, r *http.Request, q *Request, resource kube.Resource, v view.View,
) error {
	// Continue tokens are not sealed, see [view.Seal]: any replica of the cluster can continue the list.
	return c.reads.Serve(w, r, c.readRequest(q, resource, c.kinds.Of(c.member, resource), v))
}

// passLate passes a request on that the copy was to answer. From then on it does not count as
// work of the replica: a slow cluster must not take the places of others.
func (c *clusterAPI) passLate(w http.ResponseWriter, r *http.Request, q *Request) error {
	if q.leave != nil {
		q.leave()
	}
	q.Passed = true
	return c.pass.Serve(w, r, q.passthroughRequest(r))
}

// isBeyondCopy reports whether an error of the copy is due to its limits: a media type that
// it does not have, a version before its history, or a continue token of the cluster. A watch
// of an old version is not passed on: when the replica has been restarted all watches are at
// old versions, and would stay at the cluster for as long as they last.
func isBeyondCopy(q *Request, err error) bool {
	switch status.Of(err).Code {
	case http.StatusNotAcceptable:
		return true
	case http.StatusGone:
		return q.Verb == "list"
	}
	return false
}

// mustBeNewest reports whether the cluster must answer a get of the newest state of an object,
// because clients delete other objects after it. The garbage collector of Kubernetes gets the
// metadata of an owner, and deletes the objects of an owner that is missing or has another
// UID. An object that the copy does not have may have been created a moment ago, and one that
// it has may have been replaced by another of the same name.
func mustBeNewest(feed *history.Feed, r *http.Request, q *Request) bool {
	if q.Verb != "get" || q.Query.Get("resourceVersion") != "" || len(content.IsPathSegmentName(q.Name)) > 0 {
		return false
	}
	media, err := respond.Negotiate(r, respond.Ability{Protobuf: true, Shapes: true})
	if err == nil && media.Shape == respond.Partial {
		return true
	}
	now, err := feed.Now()
	if err != nil {
		return false
	}
	_, ok := now.State.Get(view.ObjectKey(q.Namespace, q.Name))
	return !ok
}

// where returns the address of the cluster, for a request that the replica cannot answer,
// and why it is not passed on.
func (c *clusterAPI) where(q *Request) func() string {
	return func() string {
		address := addressOf(c.member)
		if why := q.access.NoPassThrough; why != "" && c.pass != nil {
			address += ": " + why
		}
		return address
	}
}

// passes reports whether a request is to be passed on: the cluster has an answer, and the
// copy has none.
func (c *clusterAPI) passes(r *http.Request, q *Request) bool {
	switch {
	case c.pass == nil, isHealth(q.Path), climbs(q.Path), q.Path == document.ChangesPath:
		return false
	case !q.IsResource:
		return true
	case q.ReadsPast():
		return false
	}
	if own := c.programResourceOf(c, q); own != nil {
		return own.PreferCluster
	}
	return !c.answers(r, q)
}

// climbs reports whether a path has a part that could lead out of the root of the API. Such
// a path is not passed on: kube-apiserver does not have it either.
func climbs(path string) bool {
	parts := strings.Split(path, "/")
	return slices.Contains(parts, ".") || slices.Contains(parts, "..")
}

// answers reports whether the copy has the answer to a request for a resource.
func (c *clusterAPI) answers(r *http.Request, q *Request) bool {
	if r.Method != http.MethodGet || passthrough.WantsOrigin(r, q.Query) {
		return false
	}
	feed, ok := c.member.Feed(q.GroupResource())
	if !ok || feed.Resource().Version != q.Version {
		return false
	}
	if _, err := feed.Now(); err != nil {
		return false // it has not been read yet
	}
	if scope := c.member.Scope(); scope.LabelSelector != "" || scope.Namespace != "" && scope.Namespace != q.Namespace {
		return false
	}
	return refusal(c.member, feed.Resource(), r, q, c.where(q)) == nil
}

// serve answers a request, or passes it on. If the cluster does not answer, the copy does
// with its own discovery and OpenAPI documents, so that clients can go on to read. The cluster
// has not decided about the caller then, so the hook does.
func (c *clusterAPI) serve(w http.ResponseWriter, r *http.Request, q *Request) {
	if !q.Passed || q.access.NoPassThrough != "" || q.asksForSummary(r) {
		q.Passed = false
		c.serveAPI(c, w, r, q)
		return
	}
	err := c.pass.Serve(w, r, q.passthroughRequest(r))
	if err == nil {
		return
	}
	failed := status.Of(err).Code >= http.StatusInternalServerError
	if failed && !q.IsResource && r.Method == http.MethodGet && c.member.Discovered() {
		q.Passed = false
		if err = c.allow(r, q); err == nil {
			c.serveAPI(c, w, r, q)
			return
		}
	}
	respond.Error(w, r, err)
}

func (c *clusterAPI) serveSummary(w http.ResponseWriter, r *http.Request, q *Request) error {
	return c.past.ServeSummary(w, r, c.pastRequest(r, q), c.member)
}

// allow decides about a request that was to be passed on and is answered by the copy.
func (c *clusterAPI) allow(r *http.Request, q *Request) error {
	if c.opts.Authorize == nil {
		return checkImpersonation(r)
	}
	access, err := c.opts.Authorize(r, q)
	if access != nil {
		q.access = access
	}
	return err
}
