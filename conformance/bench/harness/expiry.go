// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

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

// Expiry makes the versions of watches expire on demand: open watches end, and the
// next watch that continues from a version is answered with 410, as by a server that
// does not remember that version any more. The client then has to read everything
// again. Expiry is part of the client's transport, so it is the same for every client.
type Expiry struct {
	mu sync.Mutex
	// expired is set until a watch has been refused.
	expired bool
	open    map[*expiringBody]struct{}
}

// Wrap returns a copy of cfg whose requests pass through the expiry.
func (e *Expiry) Wrap(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &expiringTransport{e, next} })
	return cfg
}

// Expire ends the open watches and makes the next one fail.
func (e *Expiry) Expire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expired = true
	for w := range e.open {
		w.cut.Store(true)
		_ = w.ReadCloser.Close() // wakes the reader
	}
}

// refuse reports whether a watch is to be answered with 410. It is true once for each
// call of Expire.
func (e *Expiry) refuse() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.expired
	e.expired = false
	return was
}

type expiringTransport struct {
	expiry *Expiry
	next   http.RoundTripper
}

func (t *expiringTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	watch := query.Get("watch") == "true" || query.Get("watch") == "1"
	if watch && query.Get("sendInitialEvents") != "true" && t.expiry.refuse() {
		return goneResponse(req), nil
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil || !watch || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	w := &expiringBody{ReadCloser: resp.Body, expiry: t.expiry}
	resp.Body = w
	t.expiry.mu.Lock()
	defer t.expiry.mu.Unlock()
	if t.expiry.open == nil {
		t.expiry.open = map[*expiringBody]struct{}{}
	}
	t.expiry.open[w] = struct{}{}
	return resp, nil
}

// goneResponse returns the response of an API server to a version that has expired.
func goneResponse(req *http.Request) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":%q,"code":%d}`,
		metav1.StatusReasonExpired, http.StatusGone)
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)), Request: req,
	}
}

// expiringBody is the body of a watch.
type expiringBody struct {
	io.ReadCloser
	expiry *Expiry
	cut    atomic.Bool
}

func (b *expiringBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.cut.Load() {
		return 0, io.EOF
	}
	return n, err
}

func (b *expiringBody) Close() error {
	b.expiry.mu.Lock()
	delete(b.expiry.open, b)
	b.expiry.mu.Unlock()
	return b.ReadCloser.Close()
}
