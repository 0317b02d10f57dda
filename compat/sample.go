// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

const (
	// sampleBytes limits the response to a request with a sample's credentials, and
	// sampleTimeout all of them.
	sampleBytes   = 16 << 20
	sampleTimeout = 30 * time.Second
	// startingFor is how long uid tries again while a server forbids everything, and
	// startingPoll the time between two tries.
	startingFor  = 5 * time.Second
	startingPoll = 250 * time.Millisecond
)

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
		return nil, errors.New("its client has no compat.Tap, or sends no list request: it is not known which objects it has")
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
	s := &sample{server: url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.Join(segments[:at], "/")}, query: query.Encode()}
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

// uid returns the UID of the cluster's namespace kube-system. It is "" if the client may not
// read it. The error has the reason [reflector.Busy] if the server may answer later. A server
// that starts forbids everything until it has read the rights: see [kube.Cluster.UID].
func (s *sample) uid(ctx context.Context) (string, error) {
	for end := time.Now().Add(startingFor); ; {
		var o metav1.PartialObjectMetadata
		code, err := s.get(ctx, "/api/v1/namespaces/kube-system", &o)
		switch {
		case err != nil:
			return "", fmt.Errorf("identity of the cluster: %w", err)
		case code == http.StatusOK, code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
			return string(o.UID), nil
		case code != http.StatusForbidden:
			return "", cmp.Or(busy("identity of the cluster", code), fmt.Errorf("identity of the cluster: the server responded with status %d", code))
		}
		if code, err = s.get(ctx, "/readyz", nil); err != nil {
			return "", fmt.Errorf("readiness of the server: %w", err)
		}
		if code != http.StatusForbidden || time.Now().After(end) {
			return "", busy("readiness of the server", code)
		}
		if err := timer.Sleep(ctx, startingPoll); err != nil {
			return "", fmt.Errorf("identity of the cluster: %w", err)
		}
	}
}

// busy returns an error if a status means that the server may answer later.
func busy(doing string, code int) error {
	if code != http.StatusTooManyRequests && code < http.StatusInternalServerError {
		return nil
	}
	return &reflector.Error{Reason: reflector.Busy, Err: fmt.Errorf("%s: the server responded with status %d", doing, code)}
}

// kind returns the kind of the resource, as the server describes it.
func (s *sample) kind(ctx context.Context) (schema.GroupVersionKind, error) {
	gv := s.resource.GroupVersion()
	var list metav1.APIResourceList
	code, err := s.get(ctx, kube.APIPath(gv), &list)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("kind of %v: %w", s.resource, err)
	}
	for i := range list.APIResources {
		if r := &list.APIResources[i]; r.Name == s.resource.Resource {
			return gv.WithKind(r.Kind), nil
		}
	}
	if err := busy("kind of "+s.resource.String(), code); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return schema.GroupVersionKind{}, fmt.Errorf("kind of %v: the server does not describe it (status %d)", s.resource, code)
}

// get reads an object with the credentials of the sample. It decodes only a successful
// response, and only if into is not nil.
func (s *sample) get(ctx context.Context, path string, into any) (code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.JoinPath(path).String(), nil)
	if err != nil {
		return 0, err
	}
	req.Header = s.header.Clone()
	req.Header.Set("Accept", runtime.ContentTypeJSON)
	req.Header.Del("Accept-Encoding")
	resp, err := s.next.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || into == nil {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, json.NewDecoder(io.LimitReader(resp.Body, sampleBytes)).Decode(into)
}
