// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/watershed-project/watershed/internal/expect"
)

// collector is an OTLP receiver.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracev1.Span
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// ServeHTTP implements [http.Handler].
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var request collectorv1.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &request); err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "not an export of spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// all returns the spans that have arrived.
func (c *collector) all() []*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// attributes returns the attributes of a span as text.
func attributes(s *tracev1.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		v := a.Value
		if all[a.Key] = v.GetStringValue(); all[a.Key] == "" {
			all[a.Key] = fmt.Sprint(v.GetIntValue())
		}
	}
	return all
}

// find waits for a span of a kind with attributes, in pairs.
func (c *collector) find(t *testing.T, kind tracev1.Span_SpanKind, pairs ...string) *tracev1.Span {
	t.Helper()
	var found *tracev1.Span
	expect.Eventually(t, 20*time.Second, func() error {
		var others []string
		for _, s := range c.all() {
			has := attributes(s)
			ok := s.Kind == kind
			for i := 0; i < len(pairs); i += 2 {
				ok = ok && has[pairs[i]] == pairs[i+1]
			}
			if ok {
				found = s
				return nil
			}
			others = append(others, fmt.Sprint(s.Name, has))
		}
		return fmt.Errorf("no span of kind %s with %v among\n%s", kind, pairs, strings.Join(others, "\n"))
	})
	return found
}

// tree returns the names of the spans below one, and fails if a span is not within its parent.
func (c *collector) tree(t *testing.T, s *tracev1.Span) string {
	t.Helper()
	var below []*tracev1.Span
	for _, one := range c.all() {
		if string(one.ParentSpanId) == string(s.SpanId) && string(one.TraceId) == string(s.TraceId) {
			below = append(below, one)
			if one.StartTimeUnixNano < s.StartTimeUnixNano || one.EndTimeUnixNano > s.EndTimeUnixNano ||
				one.EndTimeUnixNano < one.StartTimeUnixNano {
				t.Errorf("span %s takes from %d to %d, and %s above it from %d to %d", one.Name, one.StartTimeUnixNano,
					one.EndTimeUnixNano, s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano)
			}
		}
	}
	slices.SortFunc(below, func(a, b *tracev1.Span) int {
		return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano))
	})
	var names []string
	for _, one := range below {
		name := one.Name
		if inner := c.tree(t, one); inner != "" {
			name += "(" + inner + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

const (
	anyTrace = "0af7651916cd43dd8448eb211c80319c"
	sampled  = "00-" + anyTrace + "-b7ad6b7169203331-01"
)

// traced is a server whose requests are traced.
type traced struct {
	*configured
	*collector
	origin *origin
}

func newTraced(t *testing.T, values map[string]any) *traced {
	t.Helper()
	o := startOrigins(t, 1, 40)[0]
	c := startCollector(t)
	all := map[string]any{
		"sources.kubeconfig": kubeconfigOf(t, map[string]*origin{"eu": o}, "eu"), "mirror.resources": []string{"pods"},
		"passThrough":      true,
		"tracing.endpoint": c.URL, "tracing.samplingRatePerMillion": 1_000_000,
	}
	for path, value := range values {
		all[path] = value
	}
	return &traced{configure(t, all), c, o}
}

// request sends a request with a traceparent, "" for none, and returns the code.
func (w *traced) request(ctx context.Context, method, path, token, parent string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.url(path), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if parent != "" {
		r.Header.Set("Traceparent", parent)
	}
	return w.client.Do(r)
}

// code sends a request and returns the code of its response.
func (w *traced) code(t *testing.T, method, path, token, parent string) int {
	t.Helper()
	resp, err := w.request(t.Context(), method, path, token, parent)
	expect.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	expect.NoError(t, err)
	return resp.StatusCode
}

// pod returns the path of a pod.
func (w *traced) pod() string {
	o := w.origin.cluster.Pod(0)
	return "/clusters/eu/api/v1/namespaces/" + o.Namespace + "/pods/" + o.Name
}

// check compares a server span with the one that is wanted.
func (w *traced) check(t *testing.T, path, verb, name, tree string, pairs ...string) *tracev1.Span {
	t.Helper()
	s := w.find(t, tracev1.Span_SPAN_KIND_SERVER,
		append([]string{"url.path", path, "watershed.verb", verb}, pairs...)...)
	if got := w.tree(t, s); s.Name != name || got != tree {
		t.Errorf("%s %s: span %s with %q, want %s with %q", verb, path, s.Name, got, name, tree)
	}
	return s
}

// TestTracing_requests compares the trees of spans of requests.
func TestTracing_requests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: make e2e runs it")
	}
	w := newTraced(t, nil)
	w.origin.group = "devs"
	pod, pods := w.pod(), "/clusters/eu/api/v1/pods"
	expect.Equal(t, w.code(t, http.MethodGet, pod, "ann,devs", ""), http.StatusOK)
	expect.Equal(t, w.code(t, http.MethodGet, pods, "ann,devs", ""), http.StatusOK)
	expect.Equal(t, w.code(t, http.MethodGet, pods+"?watch=true&timeoutSeconds=1", "ann,devs", ""), http.StatusOK)
	expect.Equal(t, w.code(t, http.MethodGet, pods, "bob", ""), http.StatusForbidden)
	expect.Equal(t, w.code(t, http.MethodDelete, pod, "ann,devs", ""), http.StatusTeapot)
	expect.Equal(t, w.code(t, http.MethodGet, "/clusters/eu/api/v1/made-up", "ann,devs", ""), http.StatusNotFound)

	route := "/clusters/{cluster}/api/v1/namespaces/{namespace}/pods/{name}"
	get := w.check(t, pod, "get", "GET "+route, "admit authorize answer(wait wait)", "http.response.status_code", "200",
		"watershed.source", "copy", "http.route", route, "k8s.cluster.name", "eu", "watershed.resource", "pods")
	if n := attributes(get)["http.response.body.size"]; len(n) < 3 {
		t.Errorf("the response has %s bytes", n)
	}
	if len(get.ParentSpanId) != 0 || len(get.Links) != 0 {
		t.Errorf("the span of a request without a traceparent has a parent or links: %v", get)
	}
	w.check(t, pods, "list", "GET /clusters/{cluster}/api/v1/pods", "admit authorize answer(wait select(wait))",
		"http.response.status_code", "200")
	watch := w.check(t, pods, "watch", "GET /clusters/{cluster}/api/v1/pods", "admit authorize answer(wait wait)",
		"http.response.status_code", "200")
	if took := time.Duration(watch.EndTimeUnixNano - watch.StartTimeUnixNano); took < 900*time.Millisecond {
		t.Errorf("the span of a watch of one second takes %s", took)
	}
	w.check(t, pods, "list", "GET /clusters/{cluster}/api/v1/pods", "admit authorize", "http.response.status_code",
		"403")
	w.check(t, pod, "delete", "DELETE "+route,
		"admit authorize answer DELETE /api/v1/namespaces/{namespace}/pods/{name}", "http.response.status_code", "418",
		"watershed.source", "cluster")
	w.check(t, "/clusters/eu/api/v1/made-up", "list", "GET", "admit authorize answer GET /api/v1/made-up",
		"http.response.status_code", "404")
	// The program's own requests.
	w.find(t, tracev1.Span_SPAN_KIND_CLIENT, "k8s.cluster.name", "eu", "watershed.resource", "pods", "watershed.verb",
		"list", "url.template", "/api/v1/pods", "http.response.status_code", "200")
	expect.NoError(t, w.stopped())
	w.find(t, tracev1.Span_SPAN_KIND_CLIENT, "k8s.cluster.name", "eu", "watershed.resource", "pods", "watershed.verb",
		"watch", "http.response.status_code", "200")
	for _, s := range w.all() {
		if text := s.String(); strings.Contains(text, "devs") || strings.Contains(text, w.owner()) {
			t.Errorf("a span has a token: %s", text)
		}
	}
}

// TestTracing_parents sends a traceparent with the sampled flag, as callers that are trusted
// and as others, to a server that samples nothing by itself.
func TestTracing_parents(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: make e2e runs it")
	}
	w := newTraced(t, map[string]any{"tracing.samplingRatePerMillion": 0})
	pod := w.pod()
	expect.Equal(t, w.code(t, http.MethodGet, pod, "ann,devs", sampled), http.StatusOK)
	expect.Equal(t, w.code(t, http.MethodDelete, pod, "ann,system:masters", sampled), http.StatusTeapot)
	s := w.find(t, tracev1.Span_SPAN_KIND_SERVER, "url.path", pod)
	expect.Equal(t, hex.EncodeToString(s.TraceId)+" "+hex.EncodeToString(s.ParentSpanId), anyTrace+" b7ad6b7169203331")
	// The cluster receives the span of the request that is passed on.
	passed := w.find(t, tracev1.Span_SPAN_KIND_CLIENT, "url.template", "/api/v1/namespaces/{namespace}/pods/{name}")
	want := "00-" + anyTrace + "-" + hex.EncodeToString(passed.SpanId) + "-01"
	expect.Equal(t, w.origin.traceparent("DELETE"), want)
	// At most a burst of traces can be forced.
	for range 80 {
		expect.Equal(t, w.code(t, http.MethodGet, "/clusters/eu/api/v1", "ann,system:masters", sampled), http.StatusOK)
	}
	expect.NoError(t, w.stopped())
	servers := 0
	for _, s := range w.all() {
		if s.Kind == tracev1.Span_SPAN_KIND_SERVER {
			servers++
			if hex.EncodeToString(s.TraceId) != anyTrace ||
				attributes(s)["url.path"] == pod && attributes(s)["watershed.verb"] == "get" {
				t.Errorf("a caller that is not trusted has forced a trace: %s", s)
			}
		}
	}
	if servers < 50 || servers > 75 {
		t.Errorf("callers have forced %d traces", servers)
	}
}

// TestTracing_links has a caller that is not trusted: its parent is a link of a trace of our own.
func TestTracing_links(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: make e2e runs it")
	}
	w := newTraced(t, nil)
	pod := w.pod()
	expect.Equal(t, w.code(t, http.MethodGet, pod, "ann,devs", sampled), http.StatusOK)
	s := w.find(t, tracev1.Span_SPAN_KIND_SERVER, "url.path", pod)
	if len(s.ParentSpanId) != 0 || hex.EncodeToString(s.TraceId) == anyTrace || len(s.Links) != 1 ||
		hex.EncodeToString(s.Links[0].TraceId) != anyTrace {
		t.Errorf("the span is %s", s)
	}
	// A change, from its read to its delivery to two clients.
	var clients []*bufio.Reader
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp, err := w.request(ctx, http.MethodGet,
			"/clusters/eu/api/v1/pods?watch=true&resourceVersion="+fmt.Sprint(w.origin.cluster.Version()), "ann,devs",
			"")
		expect.NoError(t, err)
		defer resp.Body.Close()
		expect.Equal(t, resp.StatusCode, http.StatusOK)
		clients = append(clients, bufio.NewReader(resp.Body))
	}
	version := fmt.Sprint(w.origin.cluster.Touch(3))
	for _, c := range clients {
		line, err := c.ReadString('\n')
		expect.NoError(t, err)
		if !strings.Contains(line, `"resourceVersion":"`+version+`"`) {
			t.Errorf("the event is not that of version %s: %.200s", version, line)
		}
	}
	change := w.find(t, tracev1.Span_SPAN_KIND_CONSUMER, "watershed.resource_version", version, "k8s.cluster.name",
		"eu", "watershed.resource", "pods", "watershed.deliveries", "2")
	if got := w.tree(t, change); change.Name != "change pods" || got != "decode store deliver deliver" {
		t.Errorf("the spans below %s are %q", change.Name, got)
	}
}

// TestTracing_collectorIsAway serves and ends while the collector does not answer.
func TestTracing_collectorIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: make e2e runs it")
	}
	held := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-held
	}))
	defer slow.Close()
	defer close(held)
	for _, endpoint := range []string{slow.URL, "http://127.0.0.1:1"} {
		w := newTraced(t, map[string]any{"tracing.endpoint": endpoint})
		for range 100 {
			began := time.Now()
			expect.Equal(t, w.code(t, http.MethodGet, w.pod(), "ann,devs", ""), http.StatusOK)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("a request takes %s", took)
			}
		}
		expect.Eventually(t, 20*time.Second, func() error {
			if !strings.Contains(w.log.String(), "they are dropped") {
				return fmt.Errorf("the log has no line about the collector:\n%s", w.log)
			}
			return nil
		})
		began := time.Now()
		expect.NoError(t, w.stopped())
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the server takes %s to end", took)
		}
	}
}

// tracing has the cases of the keys about traces.
func (w *keyClusters) tracing() map[string]keyCase {
	var c *collector
	servers := func(s *configured) string {
		if c == nil {
			return "none"
		}
		s.get("/clusters/eu/api/v1/namespaces", s.owner())
		for _, one := range c.all() {
			if one.Kind == tracev1.Span_SPAN_KIND_SERVER {
				return "some"
			}
		}
		return "none"
	}
	c = startCollector(w.t)
	second := startCollector(w.t)
	return map[string]keyCase{
		"tracing.endpoint": {
			with:    w.one("tracing.samplingRatePerMillion", 1_000_000),
			to:      c.URL,
			observe: servers,
			want:    [2]string{"none", "some"},
		},
		"tracing.samplingRatePerMillion": {with: w.one("tracing.endpoint", second.URL), from: 0, to: 1_000_000,
			want: [2]string{"none", "some"}, observe: func(s *configured) string {
				const path = "/clusters/eu/api/v1/namespaces"
				s.get(path, s.owner())
				// The owner can force a trace. When its span arrives, earlier spans have arrived, too.
				forced := func() (own, forced int) {
					for _, one := range second.all() {
						if hex.EncodeToString(one.TraceId) == anyTrace {
							forced++
						} else {
							own++
						}
					}
					return own, forced
				}
				_, before := forced()
				(&traced{s, second, w.eu}).code(w.t, http.MethodGet, path, s.owner(), sampled)
				expect.Soon(w.t, "a span of the forced trace", func() bool { _, now := forced(); return now > before })
				if own, _ := forced(); own > 0 {
					return "some"
				}
				return "none"
			}},
	}
}
