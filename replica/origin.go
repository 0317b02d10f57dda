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
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// passedBack are the headers of a cluster's response that reach the client. Others could
// set cookies, request credentials or redirect a browser, on behalf of every cluster that
// this server has.
var passedBack = []string{
	"Audit-Id", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Etag", "Last-Modified", "Retry-After", "Vary",
	"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid",
}

// errNoResponse ends a request that was passed on.
var errNoResponse = errors.New("no response")

// wantsOrigin reports whether a client wants to read from the cluster itself.
func wantsOrigin(r *http.Request, q *Request) bool {
	return r.Header.Get("Watershed-Read") == "consistent" || q.Query.Get("watershedRead") == "consistent"
}

// origin passes reads on to a cluster.
type origin struct {
	member  *fleet.Member
	tracker *respond.Tracker
	// timeout is how long the cluster may take to send headers, and to send the next part
	// of a body that is not a watch.
	timeout time.Duration
	// requests and watches have a token for each one that is being passed on.
	requests, watches chan struct{}
}

func newOrigin(m *fleet.Member, s *shared, opts *Options) origin {
	return origin{
		member: m, tracker: &s.tracker, timeout: opts.OriginTimeout,
		requests: make(chan struct{}, opts.OriginRequests), watches: make(chan struct{}, opts.OriginWatches),
	}
}

// take takes a place for a request that is to be passed on. It does not wait: a client
// that waits would take a place in the replica. The caller calls done.
func (o *origin) take(watch bool) (done func(), err error) {
	places, what := o.requests, "requests"
	if watch {
		places, what = o.watches, "watches"
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d %s are being passed on to cluster %s, please try again later", cap(places), what, warning.Shorten(o.member.Name(), warning.MaxName)), 1)
	}
}

// proxy passes a read on. If it returns an error, nothing has been written.
func (o *origin) proxy(w http.ResponseWriter, r *http.Request, q *Request) error {
	connection := o.member.Cluster()
	if connection == nil {
		return view.Unreachable([]*fleet.Member{o.member}, "")
	}
	watch := q.watches()
	done, err := o.take(watch)
	if err != nil {
		return err
	}
	defer done()
	right := r.Context()
	if watch {
		var release func()
		right, release = until(right, q.ends)
		defer release()
	}
	ctx, cancel := context.WithCancelCause(right)
	defer cancel(nil)
	passed := r.Clone(ctx)
	query := r.URL.Query()
	query.Del("watershedRead")
	passed.URL.Path, passed.URL.RawPath, passed.URL.RawQuery = q.Path, "", query.Encode()
	passed.Body = http.NoBody
	limit := time.AfterFunc(o.timeout, func() { cancel(errNoResponse) })
	resp, err := connection.RoundTrip(passed)
	limit.Stop()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errNoResponse):
		return status.New(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("the cluster did not respond within %s", o.timeout))
	case err != nil:
		return status.New(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, warning.Shorten(err.Error(), warning.MaxCause))
	}
	defer resp.Body.Close()
	if !passable(resp) {
		return status.New(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable,
			warning.Shorten(fmt.Sprintf("cluster %s answered %q with content of type %q, which is not a response of a Kubernetes API", o.member.Name(), resp.Status, resp.Header.Get("Content-Type")), warning.MaxCause))
	}
	var body io.Reader = resp.Body
	if !watch {
		body = &prompt{resp.Body, ctx, limit, o.timeout}
	}
	o.pass(right, w, resp, body)
	return nil
}

// prompt reads a body. Its timer runs while a Read waits for the cluster, and not while the
// client is slow.
type prompt struct {
	io.Reader
	ctx     context.Context // of the request
	timer   *time.Timer
	timeout time.Duration
}

func (p *prompt) Read(b []byte) (int, error) {
	p.timer.Reset(p.timeout)
	defer p.timer.Stop()
	n, err := p.Reader.Read(b)
	if errors.Is(err, io.EOF) && errors.Is(context.Cause(p.ctx), errNoResponse) {
		err = errNoResponse // the cluster has ended its response because it was cut off
	}
	return n, err
}

// pass writes the response of the cluster, until ctx ends.
func (o *origin) pass(ctx context.Context, w http.ResponseWriter, resp *http.Response, body io.Reader) {
	for _, name := range passedBack {
		if values := resp.Header.Values(name); len(values) > 0 {
			w.Header()[name] = values
		}
	}
	warning.Pass(w.Header(), resp.Header.Values("Warning"))
	w.Header().Set("Watershed-Source", "origin")
	w.WriteHeader(resp.StatusCode)
	response := o.tracker.Begin(w)
	defer response.End()
	if err := response.FlushError(); err != nil { // a watch has begun, though nothing may happen for long
		return
	}
	if _, err := io.Copy(&flushing{response}, body); err != nil && ctx.Err() == nil {
		panic(http.ErrAbortHandler) // a part must not look like the whole
	}
}

// passable reports whether a response can be one of a Kubernetes API: of a media type that
// it has, and not a redirect. It uses plain text for paths that it does not have.
func passable(resp *http.Response) bool {
	switch {
	case resp.StatusCode == http.StatusNotModified, resp.StatusCode == http.StatusNoContent:
		return true
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest:
		return false
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (slices.Contains(encode.MediaTypes[:], media) || media == "text/plain")
}

// flushing flushes every write, since the response may be a watch.
type flushing struct{ *respond.Response }

func (f *flushing) Write(b []byte) (int, error) {
	n, err := f.Response.Write(b)
	return n, cmp.Or(err, f.FlushError())
}
