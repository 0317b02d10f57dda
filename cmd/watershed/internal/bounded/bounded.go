// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package bounded limits how much of the responses of other servers is read. Packages authn and authz
// use it for what clusters and issuers answer.
package bounded

import (
	"io"
	"net/http"
)

// Transport limits the bodies of responses, in bytes after decompression.
type Transport struct {
	Next http.RoundTripper
	// Limit is the most bytes that a body may have. Reading a larger one returns Err.
	Limit int
	Err   error
}

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Next.RoundTrip(r)
	if err == nil {
		resp.Body = &body{ReadCloser: resp.Body, left: t.Limit, err: t.Err}
	}
	return resp, err
}

// WrappedRoundTripper returns the transport below, for client-go.
func (t Transport) WrappedRoundTripper() http.RoundTripper { return t.Next }

// body returns err after left bytes.
type body struct {
	io.ReadCloser
	left int
	err  error
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.err
	}
	// One byte more than is left shows that the body is too large.
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	b.left -= n
	if b.left < 0 {
		return n + b.left, b.err
	}
	return n, err
}
