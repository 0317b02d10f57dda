// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/discovery"
	"github.com/watershed-project/watershed/internal/openapi"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// definitions are the types that a cluster has besides its own.
var definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// cluster is the API of one member.
type cluster struct {
	server  *Server
	member  *fleet.Member
	openapi *openapi.Documents
	types   types

	// mu guards what follows: the documents of discovery, and what they are of.
	mu         sync.Mutex
	served     []kube.Resource
	unmirrored []kube.Resource
	stale      []schema.GroupVersion
	versions   []schema.GroupVersion
	documents  *discovery.Documents
}

func newCluster(s *Server, m *fleet.Member) *cluster {
	return &cluster{server: s, member: m, openapi: openapi.New(m.Cluster, nil)}
}

// serve answers a request for a path below the cluster's root.
func (c *cluster) serve(w http.ResponseWriter, r *http.Request, path string) {
	w.Header().Set("Cache-Control", "no-cache, private")
	switch {
	case path == "/healthz" || path == "/livez" || path == "/readyz":
		c.serveHealth(w, r, path)
	case !c.member.Discovered():
		writeDiscoveryError(w, r, unreachable([]*fleet.Member{c.member}, ""))
	case isResource(path):
		t, _ := parsePath(path)
		if err := c.read(w, r, t, path); err != nil {
			writeError(w, r, err)
		}
	case c.discovery().Serve(w, r, path):
	case path == "/version" && r.Method == http.MethodHead:
		writeError(w, r, noMethod())
	case path == "/version" && routed(r.Header.Get("Accept"), mediaTypes[asJSON]) != nil:
		writeError(w, r, routed(r.Header.Get("Accept"), mediaTypes[asJSON]))
	case c.openapi.Serve(w, r, path):
	default:
		writeError(w, r, missing(path))
	}
}

// missing is what is said of a path that there is not: it depends on who would have it.
func missing(path string) error {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case len(parts) > 1 && parts[0] == "api":
		return noPath()
	case len(parts) > 2 && parts[0] == "apis":
		if routes(schema.GroupVersionKind{Group: parts[1]}) {
			return noPath()
		}
	}
	return errNoPage
}

// isResource reports whether a path is longer than those of discovery.
func isResource(path string) bool {
	_, ok := parsePath(path)
	return ok
}

// discovery is the documents of what is mirrored now.
func (c *cluster) discovery() *discovery.Documents {
	served, unmirrored, stale, versions := c.member.Served(), c.member.Unmirrored(), c.member.Stale(), c.member.Versions()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.documents == nil || !reflect.DeepEqual(served, c.served) || !reflect.DeepEqual(unmirrored, c.unmirrored) || !slices.Equal(stale, c.stale) || !slices.Equal(versions, c.versions) {
		c.documents = discovery.New(readable(served, defines(c.member)), unmirrored, stale, versions)
		c.served, c.unmirrored, c.stale, c.versions = served, unmirrored, stale, versions
		c.openapi.Changed()
	}
	return c.documents
}

// read answers a request for a resource. What it returns has not been answered.
func (c *cluster) read(w http.ResponseWriter, r *http.Request, t target, path string) error {
	var scope limits
	out := scope.leaveOut(c.member, t)
	feed, ok := c.member.Feed(t.GroupResource())
	if out && !ok {
		return scope.refuse(t)
	}
	if !ok || feed.Resource().Version != t.Version {
		if slices.Contains(c.member.Stale(), t.GroupVersion()) {
			http.Error(w, "service unavailable", http.StatusServiceUnavailable)
			return nil
		}
		if slices.ContainsFunc(c.member.Unmirrored(), isResourceOf(t)) {
			return notMirrored(r, t, c.where)
		}
		return missing(path)
	}
	resource := feed.Resource()
	if err := refusal(c.member, resource, r, &t, path, c.where); err != nil {
		return err
	}
	if wantsOrigin(r) {
		return c.proxy(w, r, path)
	}
	if err := scope.refusePart(t); err != nil {
		return err
	}
	scope.warn(w.Header())
	if err := unread(c.member, feed); err != nil {
		return err
	}
	c.tellAge(w, feed)
	req := &request{
		server: c.server, w: w, r: r, target: t, cluster: c, feed: feed,
		kind: resource.GroupVersionKind(), builtin: builtin(resource), namespaced: resource.Namespaced,
		known: c.types.of(c.member, resource),
	}
	return req.serve()
}

// refusal is what is said to a request that no copy of a resource can answer, nil if
// it may. Where is told to those who must ask elsewhere.
func refusal(m *fleet.Member, resource kube.Resource, r *http.Request, t *target, path string, where func() string) error {
	get := r.Method == http.MethodGet
	switch {
	case r.Method == http.MethodHead || r.Method == http.MethodOptions:
		return noMethod()
	case get && (t.namespace != "" && !resource.Namespaced || resource.Namespaced && t.namespace == "" && t.name != ""):
		return missing(path)
	}
	if t.subresource != "" {
		if err := subresourceRefusal(m, get, t, path, where); err != nil {
			return err
		}
	}
	if !get {
		return readOnly(t.GroupResource(), verb(r, *t), where())
	}
	return nil
}

// where is where to write to the cluster.
func (c *cluster) where() string {
	if connection := c.member.Cluster(); connection != nil {
		return connection.Config().Host
	}
	return "the cluster " + c.member.Name()
}

// tellAge says how old the copy may be: since when nothing was heard from the server
// and, if it is known not to be current, since when it is not.
func (c *cluster) tellAge(w http.ResponseWriter, feed *fleet.Feed) {
	s := feed.Connection()
	if !s.Heard.IsZero() {
		w.Header().Set(ageHeader, ageSince(s.Heard))
	}
	if s.StaleSince.IsZero() || s.State == reflector.Watching {
		return
	}
	w.Header().Add("Warning", staleWarning(c.member.Name(), s))
}

// ageHeader says how long ago the server was heard of last: of all clusters together, the
// one that was heard of longest ago.
const ageHeader = "Watershed-Age"

func ageSince(heard time.Time) string { return time.Since(heard).Round(time.Millisecond).String() }

// wantsOrigin reports whether a client wants to read from the cluster itself.
func wantsOrigin(r *http.Request) bool {
	return r.Header.Get("Watershed-Read") == "consistent" || strings.Contains(r.URL.RawQuery, "watershedRead=") && r.URL.Query().Get("watershedRead") == "consistent"
}

// passedBack are the headers of a cluster's answer that reach the client. Others could
// set cookies, ask for credentials or send a browser elsewhere, on behalf of every
// cluster that this server has.
var passedBack = []string{
	"Audit-Id", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Etag", "Last-Modified", "Retry-After", "Vary",
	"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid",
}

// errNoAnswer ends a request that was passed on.
var errNoAnswer = errors.New("no answer")

// proxy passes a read on to the cluster.
func (c *cluster) proxy(w http.ResponseWriter, r *http.Request, path string) error {
	connection := c.member.Cluster()
	if connection == nil {
		return unreachable([]*fleet.Member{c.member}, "")
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	origin := r.Clone(ctx)
	query := r.URL.Query()
	query.Del("watershedRead")
	origin.URL.Path, origin.URL.RawPath, origin.URL.RawQuery = path, "", query.Encode()
	origin.Body = http.NoBody
	limit := time.AfterFunc(c.server.opts.Origin, func() { cancel(errNoAnswer) })
	resp, err := connection.RoundTrip(origin)
	limit.Stop()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errNoAnswer):
		return failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("the cluster did not answer within %s", c.server.opts.Origin))
	case err != nil:
		return failure(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, shorten(err.Error(), mostCause))
	}
	defer resp.Body.Close()
	if !passable(resp) {
		return failure(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable,
			shorten(fmt.Sprintf("cluster %s answered %q with content of type %q, which is not an answer of a Kubernetes API", c.member.Name(), resp.Status, resp.Header.Get("Content-Type")), mostCause))
	}
	for _, name := range passedBack {
		if values := resp.Header.Values(name); len(values) > 0 {
			w.Header()[name] = values
		}
	}
	passWarnings(w.Header(), resp.Header.Values("Warning"))
	w.Header().Set("Watershed-Source", "origin")
	w.WriteHeader(resp.StatusCode)
	pulse := c.server.pulses.begin(w)
	defer pulse.end()
	if err := pulse.flush(); err != nil { // a watch has begun, though nothing may happen for long
		return nil
	}
	if _, err := io.Copy(&flushing{pulse}, resp.Body); err != nil && !errors.Is(err, r.Context().Err()) {
		panic(http.ErrAbortHandler) // a part must not look like the whole
	}
	return nil
}

// passable reports whether an answer can be one of a Kubernetes API: of a media type that
// it has, and not a redirect. Plain text is what it says of paths that it does not have.
func passable(resp *http.Response) bool {
	switch {
	case resp.StatusCode == http.StatusNotModified, resp.StatusCode == http.StatusNoContent:
		return true
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest:
		return false
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (slices.Contains(mediaTypes[:], media) || media == "text/plain")
}

// flushing sends everything at once, since it may be a watch.
type flushing struct{ *pulse }

func (f *flushing) Write(b []byte) (int, error) {
	n, err := f.pulse.Write(b)
	return n, cmp.Or(err, f.flush())
}

// newValue is an empty value of a kind's Go type, or unstructured.
func newValue(kind *wire.Kind) runtime.Object {
	if kind.New != nil {
		return kind.New()
	}
	return &unstructured.Unstructured{}
}
