// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package tracing

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// transport traces the program's own requests to a cluster.
type transport struct {
	*sample
	reads   *reads
	cluster string
	next    http.RoundTripper
}

// WrappedRoundTripper lets apimachinery find the connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request. Its span ends when the response has been read.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	passed := r.Context().Value(passedKey{}) != nil
	at, watch := target(r)
	if !passed && !t.draw() {
		resp, err := t.next.RoundTrip(r)
		if err == nil && watch && t.rate > 0 {
			resp.Body = &body{ReadCloser: resp.Body, read: t.reads.of(t.cluster, at)}
		}
		return resp, err
	}
	ctx, span := trace.SpanContextFromContext(r.Context()), trace.Span(nil)
	own := r.Context()
	if !passed {
		own = trace.ContextWithSpanContext(own, trace.SpanContext{})
		own, span = t.tracer.Start(own, r.Method, trace.WithSpanKind(trace.SpanKindClient))
		t.describe(span, r, at)
		ctx = span.SpanContext()
	}
	r = r.Clone(own)
	if ctx.IsValid() {
		propagator.Inject(trace.ContextWithSpanContext(context.Background(), ctx), propagation.HeaderCarrier(r.Header))
	}
	resp, err := t.next.RoundTrip(r)
	switch {
	case span == nil:
	case err != nil:
		finish(span, 0, err, http.StatusBadRequest)
	default:
		b := &body{
			ReadCloser: resp.Body,
			end:        sync.OnceFunc(func() { finish(span, resp.StatusCode, nil, http.StatusBadRequest) }),
		}
		if watch {
			b.read = t.reads.of(t.cluster, at)
		}
		resp.Body = b
	}
	return resp, err
}

// describe sets the attributes of a span.
func (t *transport) describe(span trace.Span, r *http.Request, at schema.GroupVersionResource) {
	span.SetAttributes(attribute.String("http.request.method", r.Method),
		attribute.String("server.address", r.URL.Hostname()), attribute.String("url.path", r.URL.Path),
		attribute.String("k8s.cluster.name", t.cluster))
	if at.Resource == "" {
		return
	}
	verb := strings.ToLower(r.Method)
	if r.Method == http.MethodGet {
		verb = "list"
		if r.URL.Query().Get("watch") == "true" {
			verb = "watch"
		}
	}
	path := template(at.Group, at.Version, at.Resource, "", strings.Contains(r.URL.Path, "/namespaces/"), false)
	span.SetName(r.Method + " " + path)
	span.SetAttributes(attribute.String("url.template", path),
		attribute.String("watershed.resource", at.GroupResource().String()), attribute.String("watershed.verb", verb))
}

// collection matches the path of a list or a watch: its group, version and resource.
var collection = regexp.MustCompile(`/(?:api|apis/([^/]+))/([^/]+)/(?:namespaces/[^/]+/)?([^/]+)$`)

// target returns the resource of a list or a watch, empty for any other request, and whether it
// is a watch.
func target(r *http.Request) (at schema.GroupVersionResource, watch bool) {
	parts := collection.FindStringSubmatch(r.URL.Path)
	if parts == nil {
		return at, false
	}
	return schema.GroupVersionResource{
		Group: parts[1], Version: parts[2], Resource: parts[3],
	}, r.URL.Query().Get("watch") == "true"
}

// mostReads is how many times of watches are kept. Clusters and types come and go, and none of
// them says that it has gone.
const mostReads = 200_000

// reads has the times at which the watches were last read, by cluster and resource. Each takes
// some 200 bytes. If there are too many, all are forgotten: a change whose time is not known
// begins when it is decoded.
type reads struct {
	times sync.Map
	count atomic.Int64
}

type readKey struct {
	cluster  string
	resource schema.GroupResource
}

// of returns the time of the watch of a resource, in nanoseconds since 1970.
func (r *reads) of(cluster string, at schema.GroupVersionResource) *atomic.Int64 {
	v, known := r.times.LoadOrStore(readKey{cluster, at.GroupResource()}, new(atomic.Int64))
	if !known && r.count.Add(1) > mostReads {
		r.times.Clear()
		r.count.Store(0)
	}
	return v.(*atomic.Int64)
}

// last returns when the watch of a resource was last read, at most now.
func (r *reads) last(cluster string, at schema.GroupResource, now time.Time) time.Time {
	v, ok := r.times.Load(readKey{cluster, at})
	if !ok {
		return now
	}
	if read := time.Unix(0, v.(*atomic.Int64).Load()); read.UnixNano() != 0 && read.Before(now) {
		return read
	}
	return now
}

// body is the body of a response.
type body struct {
	io.ReadCloser
	// read is set to the time after each read, unless it is nil.
	read *atomic.Int64
	// end ends the span, unless it is nil.
	end func()
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read != nil && n > 0 {
		b.read.Store(time.Now().UnixNano())
	}
	if err != nil && b.end != nil {
		b.end()
	}
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	if b.end != nil {
		defer b.end()
	}
	return b.ReadCloser.Close()
}
