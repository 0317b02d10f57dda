// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

const (
	// smallBody is how many bytes of a request are read before it is passed on. Then the
	// request can be sent again if the cluster has just closed the connection.
	smallBody = 256 << 10
	// largestWritten is how many bytes of the response to a write are read before they are
	// passed back, to find the version of the object.
	largestWritten = 16 << 20
)

// passThrough passes requests of callers on to a cluster, with their own credentials.
type passThrough struct {
	member  *fleet.Member
	tracker *respond.Tracker
	timeout time.Duration
	// requests end soon. connections stay open, such as watches, logs and terminals.
	requests, connections places
	writes                writes
}

func newPassThrough(m *fleet.Member, s *shared, opts *Options) *passThrough {
	return &passThrough{
		member: m, tracker: &s.tracker, timeout: opts.OriginTimeout,
		requests:    places{limit: opts.PassedRequests, perUser: max(1, opts.PassedRequests/2)},
		connections: places{limit: opts.PassedConnections, perUser: max(1, opts.PassedConnections/2)},
	}
}

// passes reports whether a request is to be passed on: the cluster has an answer, and the
// copy has none.
func (c *clusterAPI) passes(r *http.Request, q *Request) bool {
	switch {
	case c.pass == nil, isHealth(q.Path):
		return false
	case !q.IsResource:
		return true
	case ownOf(c, q) != nil:
		return false
	}
	return !c.answers(r, q)
}

// answers reports whether the copy has the answer to a request for a resource.
func (c *clusterAPI) answers(r *http.Request, q *Request) bool {
	if r.Method != http.MethodGet || wantsOrigin(r, q) {
		return false
	}
	feed, ok := c.member.Feed(q.GroupResource())
	if !ok || feed.Resource().Version != q.Version || view.Unread(c.member, feed) != nil {
		return false
	}
	if scope := c.member.Scope(); scope.LabelSelector != "" || scope.Namespace != "" && scope.Namespace != q.Namespace {
		return false
	}
	return refusal(c.member, feed.Resource(), r, q, c.where(q)) == nil
}

// serve answers a request, or passes it on. If the cluster does not answer, the copy does
// with its own discovery and OpenAPI documents, so that clients can go on to read.
func (c *clusterAPI) serve(w http.ResponseWriter, r *http.Request, q *Request) {
	if !q.Passed || q.withheld() != "" {
		q.Passed = false
		serveAPI(c, w, r, q)
		return
	}
	err := c.pass.serve(w, r, q)
	switch {
	case err == nil:
	case !q.IsResource && r.Method == http.MethodGet && c.member.Discovered():
		q.Passed = false
		serveAPI(c, w, r, q)
	default:
		respond.Error(w, r, err)
	}
}

// isConnection reports whether a request stays open for long, as kube-apiserver judges it.
func isConnection(r *http.Request, q *Request) bool {
	switch q.attributes.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return q.attributes.Verb == "watch" || q.attributes.Verb == "proxy" || r.Header.Get("Upgrade") != ""
}

// serve passes a request on, and its response back. If it returns an error, nothing has been
// written.
func (p *passThrough) serve(w http.ResponseWriter, r *http.Request, q *Request) error {
	connection := p.member.Cluster()
	if connection == nil {
		return view.Unreachable([]*fleet.Member{p.member}, "")
	}
	stays := isConnection(r, q)
	places, what := &p.requests, "requests"
	if stays {
		places, what = &p.connections, "connections"
	}
	done, err := places.take(q.user(), what, p.member.Name())
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	passed, err := passedRequest(ctx, r, q)
	if err != nil {
		return err
	}
	defer passed.Body.Close()
	limit := time.AfterFunc(p.timeout, func() { cancel(errNoResponse) })
	defer limit.Stop()
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	resp, err := connection.Forward(passed, from, stays || q.Verb == "list")
	limit.Stop()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errNoResponse):
		return status.New(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("cluster %s did not respond within %s", p.member.Name(), p.timeout))
	case err != nil:
		return status.New(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, warning.Shorten(err.Error(), warning.MaxCause))
	}
	defer resp.Body.Close()
	response := p.tracker.Begin(w)
	defer response.End()
	return p.respond(response, r, q, resp, &prompt{resp.Body, ctx, limit, p.timeout}, stays)
}

// passedRequest returns the request to pass on.
func passedRequest(ctx context.Context, r *http.Request, q *Request) (*http.Request, error) {
	passed := r.Clone(ctx)
	passed.URL = &url.URL{Path: q.Path, RawQuery: r.URL.RawQuery}
	if raw, ok := strings.CutPrefix(r.URL.RawPath, rootOf(r, q)); ok {
		passed.URL.RawPath = raw // net/url ignores it if it is not a form of the path
	}
	if q.Query.Has("watershedRead") {
		query := r.URL.Query()
		query.Del("watershedRead")
		passed.URL.RawQuery = query.Encode()
	}
	if !q.reads() && r.Header.Get("Accept-Encoding") != "" {
		passed.Header.Del("Accept-Encoding") // the version of the object is read
	}
	if r.ContentLength == 0 || r.Body == nil {
		passed.Body = http.NoBody
		return passed, nil
	}
	head, err := io.ReadAll(io.LimitReader(r.Body, smallBody+1))
	if err != nil {
		return nil, bodyError(err)
	}
	if len(head) <= smallBody {
		passed.ContentLength = int64(len(head))
		passed.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(head)), nil }
		passed.Body, _ = passed.GetBody()
		return passed, nil
	}
	passed.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	return passed, nil
}

// rootOf returns the path of the root of the API that a request addresses.
func rootOf(r *http.Request, q *Request) string { return strings.TrimSuffix(r.URL.Path, q.Path) }

// bodyError returns the error for a body that cannot be read.
func bodyError(err error) error {
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return status.New(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf("Request entity too large: limit is %d", tooLong.Limit))
	}
	return status.New(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body of the request cannot be read: "+err.Error())
}

// respond passes a response back. If it returns an error, nothing has been written.
func (p *passThrough) respond(w *respond.Response, r *http.Request, q *Request, resp *http.Response, body io.Reader, stays bool) error {
	location, err := p.location(r, q, resp)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols && !isProxied(q) && location == "" && !passable(resp) {
		err = fmt.Errorf("cluster %s answered %q with content of type %q, which is not a response of a Kubernetes API", p.member.Name(), resp.Status, resp.Header.Get("Content-Type"))
	}
	if err != nil {
		return status.New(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, warning.Shorten(err.Error(), warning.MaxCause))
	}
	passHeaders(w.Header(), resp.Header)
	if location != "" {
		w.Header().Set("Location", location)
	}
	w.Header().Set("Watershed-Source", "passed-on")
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return p.tunnel(w, r, resp)
	case changes(r, q) && resp.StatusCode < http.StatusMultipleChoices:
		return p.written(w, q, resp, body)
	case stays:
		// A pause is normal, for the cluster and for the client.
		p.copy(r, w, resp, resp.Body, w.Untracked())
		return nil
	}
	p.copy(r, w, resp, body, &flushing{w})
	return nil
}

// passHeaders passes the headers of a response back.
func passHeaders(to, from http.Header) {
	for _, name := range passedBack {
		if values := from.Values(name); len(values) > 0 {
			to[name] = values
		}
	}
	warning.Pass(to, from.Values("Warning"))
}

// isProxied reports whether the response comes from a program in the cluster.
func isProxied(q *Request) bool {
	return q.attributes.Subresource == "proxy" || q.attributes.Verb == "proxy"
}

// location returns where a response redirects the client to: "" if it does not. The path is
// that of the cluster, so it is moved below the root of the API. A redirect to another server
// is an error: the client would send its token there.
func (p *passThrough) location(r *http.Request, q *Request, resp *http.Response) (string, error) {
	if resp.StatusCode < http.StatusMultipleChoices || resp.StatusCode >= http.StatusBadRequest || resp.StatusCode == http.StatusNotModified {
		return "", nil
	}
	text := resp.Header.Get("Location")
	to, err := url.Parse(text)
	if err != nil || to.Scheme != "" || to.Host != "" || to.User != nil || !strings.HasPrefix(to.Path, "/") || strings.HasPrefix(to.Path, "//") || strings.ContainsAny(text, "\\") {
		return "", fmt.Errorf("cluster %s redirects to %q, and redirects to another server are not passed back", p.member.Name(), text)
	}
	if slices.Contains(strings.Split(to.Path, "/"), "..") {
		return "", fmt.Errorf("cluster %s redirects to a path that climbs, %q", p.member.Name(), text)
	}
	return rootOf(r, q) + to.String(), nil
}

// copy writes a response and its body.
func (p *passThrough) copy(r *http.Request, w *respond.Response, resp *http.Response, body io.Reader, to io.Writer) {
	w.WriteHeader(resp.StatusCode)
	if err := w.FlushError(); err != nil {
		return
	}
	if _, err := io.Copy(to, body); err != nil && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // a part must not look like the whole
	}
}

// tunnel connects the client and the cluster, which have agreed on another protocol.
func (p *passThrough) tunnel(w *respond.Response, r *http.Request, resp *http.Response) error {
	for _, name := range []string{"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "X-Stream-Protocol-Version"} {
		if values := resp.Header.Values(name); len(values) > 0 {
			w.Header()[name] = values
		}
	}
	w.Header().Del("Content-Length")
	to, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || r.Header.Get("Upgrade") == "" || !strings.EqualFold(resp.Header.Get("Upgrade"), r.Header.Get("Upgrade")) {
		return status.New(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, fmt.Sprintf("cluster %s changed to a protocol that was not asked for", p.member.Name()))
	}
	return respond.Tunnel(w, r, to)
}
