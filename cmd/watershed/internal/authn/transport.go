// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// maxResponse limits a response of a cluster or an issuer, in bytes after decompression.
const maxResponse = 1 << 20

var errTooLarge = errors.New("the response is too large")

// get reads a small document.
func get(ctx context.Context, transport http.RoundTripper, url string) (code int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := boundedTransport{transport}.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// boundedTransport limits the bodies of responses to maxResponse.
type boundedTransport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxResponse}
	}
	return resp, err
}

// boundedBody returns errTooLarge after left bytes.
type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLarge
	}
	// One byte more than is left shows that the body is too large.
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	b.left -= n
	if b.left < 0 {
		return n + b.left, errTooLarge
	}
	return n, err
}
