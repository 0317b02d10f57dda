// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

const (
	// smallBody is how many bytes of a request are read before it is passed on. Then the
	// request can be sent again if the cluster has just closed the connection.
	smallBody = 256 << 10
	// The response to a write is read before it is passed back, to find the version of the
	// object, if it has at most largestWritten bytes. Each response may have smallWritten of
	// them, and all together WrittenBytes more.
	largestWritten = 16 << 20
	smallWritten   = 64 << 10
)

// WrittenBytes is how many bytes the responses to writes of all clusters may hold, see [New].
const WrittenBytes = 64 << 20

// Forwarder passes requests of callers on to a cluster, with their own credentials.
type Forwarder struct {
	origin
	// requests end soon. connections stay open, such as watches, logs and terminals.
	requests, connections passLimit
	writes                writes
	// notes connects the writes with other replicas, nil if there are none. received are the writes
	// of the others, by the digests of their users.
	notes    *Notes
	received writes
	// buffered bounds the bytes of responses to writes, of all clusters.
	buffered *respond.Budget
	logger   *slog.Logger
	// warned is when the log last had that the cluster does not tell callers apart, in
	// nanoseconds since 1970.
	warned atomic.Int64
}

// New returns what passes requests on to a member. What is written to clients is added to a tracker, and
// buffered bounds the bytes of responses to writes, of all clusters. Notes is nil if there are no other replicas.
func New(
	m *fleet.Member, tracker *respond.Tracker, buffered *respond.Budget, limits Limits, notes *Notes,
	logger *slog.Logger,
) *Forwarder {
	p := &Forwarder{
		origin:      origin{m, tracker, limits.Timeout},
		requests:    newPassLimit(limits.Requests),
		connections: newPassLimit(limits.Connections),
		buffered:    buffered,
		logger:      logger,
		notes:       notes,
	}
	if notes != nil {
		p.received.budget = notes.Received
	}
	return p
}

// Wait waits until the copy of a resource has the writes of a user, also those that other replicas have sent notes of.
// It returns false if the copy takes too long: then the cluster must answer.
func (p *Forwarder) Wait(ctx context.Context, user string, feed *history.Feed) bool {
	if !p.writes.wait(ctx, user, feed) {
		return false
	}
	return p.notes == nil || user == "" || p.received.wait(ctx, digestOf(user), feed)
}

// ForgetWrites forgets the writes that the copy has.
func (p *Forwarder) ForgetWrites() {
	p.writes.sweep(p.member)
	p.received.sweep(p.member)
}

// Close releases what the notes of other replicas have taken, when the cluster has left.
func (p *Forwarder) Close() { p.received.close() }

// warn logs once a minute that nothing is passed on, because the cluster does not tell callers
// apart.
func (p *Forwarder) warn(err error) {
	now, last := time.Now().UnixNano(), p.warned.Load()
	if now-last >= int64(time.Minute) && p.warned.CompareAndSwap(last, now) {
		p.logger.Warn("requests are not passed on", "cluster", p.member.Name(), "err", err)
	}
}

// Serve passes a request on, and its response back. If it returns an error, nothing has been
// written.
func (p *Forwarder) Serve(w http.ResponseWriter, r *http.Request, q *Request) error {
	limit, what := &p.requests, "requests"
	if q.StaysOpen {
		limit, what = &p.connections, "connections"
	}
	done, err := limit.take(q.User, what, p.member.Name())
	if err != nil {
		return err
	}
	defer done()
	passed, err := passedRequest(r, q)
	if err != nil {
		return err
	}
	defer passed.Body.Close()
	if q.Subresource == "eviction" || q.Subresource == "binding" {
		// The response does not have the UID, and the copy may not have the object any more
		// when it arrives.
		if feed, ok := p.member.Feed(q.GroupResource()); ok {
			q.uid = uidOf(feed, view.ObjectKey(q.Namespace, q.Name))
		}
	}
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	ctx, ended := q.PassOn(r.Context(), passed.Header)
	resp, err := p.ask(ctx, func(ctx context.Context, connection *kube.Cluster) (*http.Response, error) {
		resp, err := connection.Forward(passed.WithContext(ctx), from, q.StaysOpen || q.Verb == "list")
		if errors.Is(err, kube.ErrIndistinctCallers) {
			p.warn(err)
		}
		return resp, err
	})
	if err != nil {
		ended(0, err)
		return err
	}
	defer func() { ended(resp.StatusCode, nil) }()
	defer resp.end()
	if resp.StatusCode == http.StatusConflict && q.Changes && passed.GetBody != nil {
		p.refused(ctx, q, passed)
	}
	response := p.tracker.Begin(w)
	defer response.End()
	return p.respond(response, r, q, resp)
}

// passedRequest returns the request to pass on.
func passedRequest(r *http.Request, q *Request) (*http.Request, error) {
	passed := r.Clone(r.Context())
	passed.URL = &url.URL{Path: q.Path, RawQuery: r.URL.RawQuery}
	if raw, ok := strings.CutPrefix(r.URL.RawPath, rootOf(r, q)); ok {
		passed.URL.RawPath = raw // net/url ignores it if it is not a form of the path
	}
	if late := q.Late && q.Query.Get("resourceVersion") == "0"; late || q.Query.Has("watershedRead") {
		query := r.URL.Query()
		query.Del("watershedRead")
		if late {
			// The cache of kube-apiserver may be as late as the copy is.
			query.Del("resourceVersion")
			query.Del("resourceVersionMatch")
		}
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
		return status.New(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("Request entity too large: limit is %d", tooLong.Limit))
	}
	return status.New(http.StatusBadRequest, metav1.StatusReasonBadRequest,
		"the body of the request cannot be read: "+err.Error())
}

// respond passes a response back. If it returns an error, nothing has been written.
func (p *Forwarder) respond(w *respond.Response, r *http.Request, q *Request, resp *answer) error {
	location, err := p.location(r, q, resp.Response)
	if err != nil {
		return badGateway(err.Error())
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		passHeaders(w.Header(), resp.Header, "passed-on")
		return p.tunnel(w, r, resp.Response)
	}
	if location == "" && !q.Proxied {
		if err := p.check(resp.Response); err != nil {
			return err
		}
	}
	passHeaders(w.Header(), resp.Header, "passed-on")
	if q.unconfirmed {
		warning.Add(w.Header(), notAnnounced)
	}
	switch {
	case location != "":
		w.Header().Set("Location", location)
		passBody(r.Context(), w, resp.StatusCode, resp.prompt, w, false)
	case q.Changes && resp.StatusCode < http.StatusMultipleChoices:
		p.written(r.Context(), w, q, resp)
	case q.StaysOpen:
		// A pause is normal, for the cluster and for the client.
		passBody(r.Context(), w, resp.StatusCode, resp.Body, w.Untracked(), q.Watch)
	default:
		passBody(r.Context(), w, resp.StatusCode, resp.prompt, w.Flushing(), false)
	}
	return nil
}

// location returns where a response redirects the client to: "" if it does not. The path is
// that of the cluster, so it is moved below the root of the API. A redirect to another server
// is an error: the client would send its token there.
func (p *Forwarder) location(r *http.Request, q *Request, resp *http.Response) (string, error) {
	code := resp.StatusCode
	if code < http.StatusMultipleChoices || code >= http.StatusBadRequest || code == http.StatusNotModified {
		return "", nil
	}
	text := resp.Header.Get("Location")
	to, err := url.Parse(text)
	if err != nil || to.Scheme != "" || to.Host != "" || to.User != nil ||
		!strings.HasPrefix(to.Path, "/") || strings.HasPrefix(to.Path, "//") || strings.ContainsAny(text, "\\") {
		return "", fmt.Errorf("cluster %s redirects to %q, and redirects to another server are not passed back",
			p.member.Name(), text)
	}
	if slices.Contains(strings.Split(to.Path, "/"), "..") {
		return "", fmt.Errorf("cluster %s redirects to a path that climbs, %q", p.member.Name(), text)
	}
	return rootOf(r, q) + to.String(), nil
}

// tunnel connects the client and the cluster, which have agreed on another protocol.
func (p *Forwarder) tunnel(w *respond.Response, r *http.Request, resp *http.Response) error {
	for _, name := range []string{
		"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol",
		"X-Stream-Protocol-Version",
	} {
		if values := resp.Header.Values(name); len(values) > 0 {
			w.Header()[name] = values
		}
	}
	w.Header().Del("Content-Length")
	to, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || r.Header.Get("Upgrade") == "" || !strings.EqualFold(resp.Header.Get("Upgrade"), r.Header.Get("Upgrade")) {
		return badGateway(fmt.Sprintf("cluster %s changed to a protocol that was not asked for", p.member.Name()))
	}
	return respond.Tunnel(w, r, to)
}

// refused records what the next reads of the user must see after a conflict.
func (p *Forwarder) refused(ctx context.Context, q *Request, passed *http.Request) {
	body, err := passed.GetBody()
	if err != nil {
		return
	}
	sent, err := io.ReadAll(body)
	if err != nil {
		return
	}
	e := conflictEffect(q, passed.Header.Get("Content-Type"), sent)
	if feed, mirrored := feedOf(p.member, view.StoredAs(q.GroupResource())); mirrored && !e.isNone() {
		p.writes.add(q.User, feed, e)
	}
	q.unconfirmed = !p.announce(ctx, q, e)
}

// written passes the response to a write back, after it has recorded what the next reads of
// the user must see, here and at other replicas. The effect of a response that is too large, or does
// not fit into the budget, is unknown.
func (p *Forwarder) written(ctx context.Context, w *respond.Response, q *Request, resp *answer) {
	head, taken, err := p.buffer(q.User, resp.prompt)
	e := effect{unknown: true}
	if errors.Is(err, io.EOF) {
		e, err = effectOf(q, resp.Header.Get("Content-Type"), head), nil
	}
	if feed, mirrored := feedOf(p.member, view.StoredAs(q.GroupResource())); mirrored && !e.isNone() {
		p.writes.add(q.User, feed, e)
	}
	if !p.announce(ctx, q, e) {
		warning.Add(w.Header(), notAnnounced)
	}
	w.WriteHeader(resp.StatusCode)
	_, failed := w.Write(head)
	p.buffered.Release(q.User, taken)
	if failed == nil && err == nil {
		_, err = io.Copy(w, resp.prompt)
	}
	if failed != nil || err != nil {
		panic(http.ErrAbortHandler) // a part must not look like the whole
	}
}

// buffer reads the beginning of a body, and all of it if the budget allows: err is then io.EOF.
// The caller releases the bytes that were taken from the budget.
func (p *Forwarder) buffer(user string, body io.Reader) (head []byte, taken int, err error) {
	head = make([]byte, 0, 4<<10)
	for err == nil {
		if len(head) == cap(head) {
			more := cap(head)
			if 2*more > smallWritten {
				got := 0
				if 2*more <= largestWritten {
					got = p.buffered.Take(user, more)
				}
				if taken += got; got < more {
					return head, taken, nil
				}
			}
			head = append(make([]byte, 0, 2*more), head...)
		}
		var n int
		n, err = body.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
	}
	return head, taken, err
}
