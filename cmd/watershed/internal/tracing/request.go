// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package tracing

import (
	"context"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/replica"
)

// request is the trace of a request. Its span begins when the caller is known, with the time
// at which the request arrived: only then it is known whether its traceparent is trusted.
type request struct {
	tracing *Tracing
	r       *http.Request
	q       *replica.Request
	began   time.Time
	// chosen means that the request belongs to the sample.
	chosen bool
	parent trace.SpanContext
	// ctx has the span, nil before it has begun.
	ctx    context.Context
	phases []phase
	// open is the innermost phase that has not ended, -1 if there is none.
	open int
}

// phase is a part of the work for a request.
type phase struct {
	name       replica.Phase
	began, end time.Time
	within     int
}

// Request is [replica.Options.Trace].
func (t *Tracing) Request(r *http.Request, q *replica.Request) replica.Trace {
	one := &request{tracing: t, r: r, q: q, began: time.Now(), chosen: t.draw(), open: -1}
	if r.Header.Get("Traceparent") != "" {
		carried := propagator.Extract(context.Background(), propagation.HeaderCarrier(r.Header))
		one.parent = trace.SpanContextFromContext(carried)
	} else if !one.chosen {
		return nil
	}
	return one
}

// trusted reports whether the parent of a request, and its sampled flag, are used. The rule is
// that of kube-apiserver: the caller is of the group system:masters or system:monitoring. The
// owner of the program is trusted too. Each cluster decides which users these groups have, so the
// traces that callers can force are limited.
func (one *request) trusted() bool {
	call := access.CallOf(one.r)
	if call == nil || call.User == nil || !one.parent.IsValid() {
		return false
	}
	privileged := call.User.Username == "watershed:owner" ||
		slices.ContainsFunc(call.User.Groups, func(g string) bool {
			return g == "system:masters" || g == "system:monitoring"
		})
	return privileged && (!one.parent.IsSampled() || one.tracing.forced.AllowN(one.began, 1))
}

// start begins the span. A parent that is not trusted becomes a link.
func (one *request) start() {
	if one.ctx != nil {
		return
	}
	ctx := context.Background()
	opts := []trace.SpanStartOption{trace.WithTimestamp(one.began), trace.WithSpanKind(trace.SpanKindServer)}
	switch {
	case one.trusted():
		ctx = trace.ContextWithRemoteSpanContext(ctx, one.parent)
	case !one.chosen:
		ctx = context.WithValue(ctx, unchosenKey{}, true)
	case one.parent.IsValid():
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: one.parent}))
	}
	one.ctx, _ = one.tracing.tracer.Start(ctx, one.r.Method, opts...)
}

// now returns the time by the clock that the beginning was read from and the time since then. So
// spans are within their parents, also if the clock of the machine is set meanwhile.
func (one *request) now() time.Time { return one.began.Add(time.Since(one.began)) }

// Phase implements [replica.Trace].
func (one *request) Phase(p replica.Phase) (end func()) {
	i := len(one.phases)
	one.phases = append(one.phases, phase{name: p, began: one.now(), within: one.open})
	one.open = i
	return func() {
		one.phases[i].end = one.now()
		one.open = one.phases[i].within
		if p == replica.PhaseAdmit {
			one.start()
		}
	}
}

// PassOn implements [replica.Trace].
func (one *request) PassOn(ctx context.Context, header http.Header) (_ context.Context, end func(code int, err error)) {
	one.start()
	ctx = trace.ContextWithSpan(ctx, trace.SpanFromContext(one.ctx))
	ctx, span := one.tracing.tracer.Start(ctx, one.r.Method+" "+routeOf(one.q),
		trace.WithTimestamp(one.now()), trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(attribute.String("http.request.method", one.r.Method),
			attribute.String("url.template", routeOf(one.q)),
			attribute.String("k8s.cluster.name", one.q.Cluster))
		span.SetAttributes(kubernetes(one.q)...)
	}
	header.Del("Tracestate")
	propagator.Inject(ctx, propagation.HeaderCarrier(header))
	return context.WithValue(ctx, passedKey{}, true), func(code int, err error) {
		finish(span, code, err, http.StatusBadRequest)
	}
}

// passedKey marks the context of a request that has a span already.
type passedKey struct{}

// finish ends the span of a request to a cluster, or of one that the program answers. A code
// is an error from a value on: 400 for a client, 500 for a server.
func finish(span trace.Span, code int, err error, errorFrom int) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if code != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", code))
	}
	switch {
	case err != nil:
		// The text of the error may have content of the request.
		span.SetAttributes(attribute.String("error.type", "_OTHER"))
		span.SetStatus(codes.Error, "no response")
	case code >= errorFrom:
		span.SetAttributes(attribute.Int("error.type", code))
		span.SetStatus(codes.Error, "")
	}
}

// End implements [replica.Trace].
func (one *request) End(e replica.Ending) {
	one.start()
	span := trace.SpanFromContext(one.ctx)
	if !span.IsRecording() {
		span.End()
		return
	}
	one.record()
	source := "copy"
	if e.Passed {
		source = "cluster"
	}
	span.SetAttributes(
		attribute.String("http.request.method", one.r.Method), attribute.String("url.path", one.r.URL.Path),
		attribute.String("url.scheme", "https"),
		attribute.Int64("http.response.body.size", e.Bytes), attribute.String("watershed.source", source),
		attribute.String("network.protocol.version", protocol(one.r)))
	span.SetAttributes(kubernetes(one.q)...)
	if one.q.Cluster != "" && one.q.Member != nil {
		span.SetAttributes(attribute.String("k8s.cluster.name", one.q.Member.Name()))
	}
	// The resource of a 404 may be a name that a client has made up.
	if e.Status != http.StatusNotFound {
		route := prefixOf(one.q) + routeOf(one.q)
		span.SetAttributes(attribute.String("http.route", route))
		span.SetName(one.r.Method + " " + route)
	}
	if e.Aborted {
		span.SetAttributes(attribute.Bool("watershed.aborted", true))
		span.SetStatus(codes.Error, "the response is not complete")
	}
	finish(span, e.Status, nil, http.StatusInternalServerError)
}

// record makes the spans of the phases.
func (one *request) record() {
	all := make([]context.Context, len(one.phases))
	now := one.now()
	for i, p := range one.phases {
		ctx := one.ctx
		if p.within >= 0 {
			ctx = all[p.within]
		}
		if p.end.IsZero() {
			p.end = now // the handler was aborted
		}
		var span trace.Span
		all[i], span = one.tracing.tracer.Start(ctx, string(p.name), trace.WithTimestamp(p.began))
		span.End(trace.WithTimestamp(p.end))
	}
}

// Delivery is part of [replica.DeliveryTrace].
func (t *Tracing) Delivery(
	cluster string, r schema.GroupResource, version uint64, watch replica.Trace,
) (delivered func()) {
	var span trace.SpanContext
	if w, ok := watch.(*request); ok && w.ctx != nil {
		span = trace.SpanContextFromContext(w.ctx)
	}
	return t.changes.delivery(cluster, r, version, span)
}
