// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/kube"
)

// sampleTimeout limits the requests that identify the cluster and the kind of a sample.
const sampleTimeout = 30 * time.Second

// sampleKey is the key of a sample in a context.
type sampleKey struct{}

// sample is the list request of a ListerWatcher, which is not sent. It has everything that
// decides which objects an informer has, and in which form: a ListerWatcher does not say.
type sample struct {
	// server is the URL of the API server.
	server   url.URL
	resource schema.GroupVersionResource
	// namespace and query limit the objects. The query has whatever the client adds to its
	// options, in a fixed order.
	namespace, query string
	header           http.Header
	next             http.RoundTripper
}

// takeSample calls a ListerWatcher for its list request. It fails if the client has no [Tap].
func takeSample(ctx context.Context, lister cache.ListerWatcherWithContext) (*sample, error) {
	w := &sampling{}
	// What the client makes of a list without a body has no meaning. Without a tap the
	// request is sent, so it has a limit.
	_, _ = lister.ListWithContext(context.WithValue(ctx, sampleKey{}, w), metav1.ListOptions{Limit: 1})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sample == nil {
		return nil, errors.New("its client has no compat.Tap, or sends no list request: it is not known which " +
			"objects it has")
	}
	return w.sample, nil
}

// sampling is a call of a ListerWatcher that waits for a sample.
type sampling struct {
	mu     sync.Mutex
	sample *sample
}

// take keeps a request if it is a list. It returns nil if it is not: a ListerWatcher may
// send other requests before.
func (w *sampling) take(req *http.Request, next http.RoundTripper) *http.Response {
	s := parseList(req.URL)
	if req.Method != http.MethodGet || s == nil {
		return nil
	}
	s.header, s.next = req.Header.Clone(), next
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sample = s
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: http.NoBody,
	}
}

// parseList returns what the URL of a list selects. It returns nil for other URLs.
func parseList(u *url.URL) *sample {
	segments := strings.Split(strings.TrimSuffix(u.Path, "/"), "/")
	at := slices.IndexFunc(segments, func(s string) bool { return s == "api" || s == "apis" })
	if at < 0 {
		return nil
	}
	query := u.Query()
	query.Del("limit")
	s := &sample{
		server: url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.Join(segments[:at], "/")},
		query:  query.Encode(),
	}
	rest := segments[at+1:]
	if segments[at] == "apis" && len(rest) > 0 {
		s.resource.Group, rest = rest[0], rest[1:]
	}
	switch {
	case len(rest) == 2:
		s.resource.Version, s.resource.Resource = rest[0], rest[1]
	case len(rest) == 4 && rest[1] == "namespaces":
		s.resource.Version, s.namespace, s.resource.Resource = rest[0], rest[2], rest[3]
	default:
		return nil
	}
	return s
}

// protobuf reports whether the client prefers protobuf.
func (s *sample) protobuf() bool {
	return strings.HasPrefix(s.header.Get("Accept"), runtime.ContentTypeProtobuf)
}

// cluster returns the cluster that the sample would be sent to, with the sample's credentials.
func (s *sample) cluster() (*kube.Cluster, error) {
	return kube.FromConfig(&rest.Config{
		Host: s.server.String(), UserAgent: s.header.Get("User-Agent"), Transport: s,
	}, nil)
}

// RoundTrip sends a request with those headers of the sample that the request does not have.
// The credentials are among them: the client has added them before its tap took the sample.
func (s *sample) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, values := range s.header {
		if _, ok := req.Header[name]; !ok {
			req.Header[name] = slices.Clone(values)
		}
	}
	return s.next.RoundTrip(req)
}
