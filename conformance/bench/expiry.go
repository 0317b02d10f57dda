// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// expiry makes the versions of a watch expire when it is told to: the watches that
// are open end, and the next that would go on from a version is answered with 410,
// as by a server that does not remember that far back. Any client can only read
// everything again. It is below the client, in its process, and the same for all.
type expiry struct {
	mu      sync.Mutex
	expired bool
	open    map[*watched]struct{}
}

// in is cfg by way of the expiry.
func (e *expiry) in(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &expiring{e, next} })
	return cfg
}

// expire ends the watches.
func (e *expiry) expire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expired = true
	for w := range e.open {
		w.cut.Store(true)
		_ = w.ReadCloser.Close() // wakes whoever reads
	}
}

// refuses reports whether this is the watch to be answered with 410.
func (e *expiry) refuses() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.expired
	e.expired = false
	return was
}

type expiring struct {
	expiry *expiry
	next   http.RoundTripper
}

func (e *expiring) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	watch := query.Get("watch") == "true" || query.Get("watch") == "1"
	if watch && query.Get("sendInitialEvents") != "true" && e.expiry.refuses() {
		return gone(req), nil
	}
	resp, err := e.next.RoundTrip(req)
	if err != nil || !watch || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	w := &watched{ReadCloser: resp.Body, expiry: e.expiry}
	resp.Body = w
	e.expiry.mu.Lock()
	defer e.expiry.mu.Unlock()
	if e.expiry.open == nil {
		e.expiry.open = map[*watched]struct{}{}
	}
	e.expiry.open[w] = struct{}{}
	return resp, nil
}

// gone is how an API server says that a version has expired.
func gone(req *http.Request) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":%q,"code":%d}`,
		metav1.StatusReasonExpired, http.StatusGone)
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)), Request: req,
	}
}

// watched is the body of a watch.
type watched struct {
	io.ReadCloser
	expiry *expiry
	cut    atomic.Bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if w.cut.Load() {
		return 0, io.EOF
	}
	return n, err
}

func (w *watched) Close() error {
	w.expiry.mu.Lock()
	delete(w.expiry.open, w)
	w.expiry.mu.Unlock()
	return w.ReadCloser.Close()
}
