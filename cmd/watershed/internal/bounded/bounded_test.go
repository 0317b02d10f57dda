// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package bounded

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

type respond func(*http.Request) (*http.Response, error)

func (f respond) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransport_limits checks that a body of the limit can be read, and a larger one cannot, in
// whatever pieces it arrives.
func TestTransport_limits(t *testing.T) {
	tooLarge := errors.New("too large")
	for name, pieces := range map[string]func(io.Reader) io.Reader{
		"whole":         func(r io.Reader) io.Reader { return r },
		"bytes":         iotest.OneByteReader,
		"end with data": iotest.DataErrReader,
	} {
		for bytes, want := range map[int]error{0: nil, 9: nil, 10: nil, 11: tooLarge, 1000: tooLarge} {
			transport := Transport{Limit: 10, Err: tooLarge, Next: respond(func(*http.Request) (*http.Response, error) {
				return &http.Response{Body: io.NopCloser(pieces(strings.NewReader(strings.Repeat("x", bytes))))}, nil
			})}
			resp, err := transport.RoundTrip(&http.Request{})
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if len(text) != min(bytes, 10) || err != want { //nolint:errorlint // it is not wrapped
				t.Errorf("%s, %d bytes: read %d, %v", name, bytes, len(text), err)
			}
		}
	}
}
