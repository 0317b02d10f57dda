// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/watershed-project/watershed/cmd/watershed/internal/bounded"
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
	resp, err := limited(transport).RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// limited limits the bodies of responses to maxResponse.
func limited(next http.RoundTripper) http.RoundTripper {
	return bounded.Transport{Next: next, Limit: maxResponse, Err: errTooLarge}
}
