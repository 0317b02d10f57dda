// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// known serves requests with any token, and answers others with 401.
func known(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	Authenticated(r)
	ok(w, r)
}

// getKnown sends a request with a token and returns the code of the response.
func (w *runningServer) getKnown(t *testing.T, c *http.Client) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+w.address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer token")
	resp, err := c.Do(r)
	code, _ := read(t, resp, err)
	return code
}

// stranger opens the nth connection without an authenticated caller: one that is silent, one with
// a handshake, or one with a request that was answered with 401.
func (w *runningServer) stranger(t *testing.T, n int) net.Conn {
	t.Helper()
	if n%3 == 0 {
		c, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := w.dial(t, "http/1.1")
	if n%3 == 1 {
		return c
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if code, _ := read(t, resp, err); code != http.StatusUnauthorized {
		t.Fatalf("a request without a token is answered with %d", code)
	}
	return c
}

// TestServer_strangersMakeRoom fills the server with connections without an authenticated caller.
// New clients are served, the oldest such connection is closed for each, and the connections of
// authenticated callers stay open.
func TestServer_strangersMakeRoom(t *testing.T) {
	const total, strangers = 10, 8
	w := start(t, known, func(o *Options) { o.Connections, o.HeaderTimeout = total, time.Minute })
	first := []*http.Client{w.client(t, false), w.client(t, true)}
	for _, c := range first {
		if code := w.getKnown(t, c); code != http.StatusOK {
			t.Fatalf("a request with a token is answered with %d", code)
		}
	}
	var held []net.Conn
	for n := range strangers {
		held = append(held, w.stranger(t, n))
		waitForConnections(t, w, len(first)+n+1)
	}
	for n, c := range held {
		if code := w.getKnown(t, w.client(t, n%2 == 0)); code != http.StatusOK {
			t.Errorf("a request with a token is answered with %d", code)
		}
		if s := w.Stats(); s.Connections != total || s.Displaced != uint64(n+1) || s.Refused != 0 {
			t.Errorf("after %d new clients: %+v", n+1, s)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("stranger %d is not disconnected", n)
		}
	}
	late, err := net.Dial("tcp", w.address)
	if err == nil {
		_ = late.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, late); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection is accepted although all others have callers")
		}
		late.Close()
	}
	for _, c := range first {
		w.getKnown(t, c)
	}
	// A client whose connection had been closed would have opened another one.
	if s := w.Stats(); s.Connections != total || s.Displaced != strangers || s.Refused != 1 {
		t.Errorf("at the end: %+v", s)
	}
}
