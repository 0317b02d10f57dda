// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestServer_requestsTheFormat(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
			return
		}
		if r.URL.Path == "/unasked" || r.Header.Get("Accept-Encoding") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
		}
		_, _ = io.WriteString(w, strings.Join([]string{
			r.Proto, r.Header.Get("Accept"), r.Header.Get("Accept-Encoding"), r.Header.Get("Authorization"),
		}, " "))
	})
	client := newClient(t, s)
	for _, c := range []struct {
		format Format
		want   string
	}{
		{Format{Accept: JSON}, "HTTP/2.0 application/json identity Bearer secret"},
		{Format{Accept: Protobuf, Gzip: true}, "HTTP/2.0 application/vnd.kubernetes.protobuf gzip Bearer secret"},
	} {
		body, err := s.Get(t.Context(), client, "/", c.format)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil || string(text) != c.want {
			t.Errorf("%s, %v, want %s", text, err, c.want)
		}
	}
	for _, path := range []string{"/missing", "/unasked"} {
		if _, err := s.Get(t.Context(), client, path, Format{Accept: JSON}); err == nil ||
			!strings.Contains(err.Error(), "test server "+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAddress_leadsToTheSameServer(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	again := s.Address().Server()
	if _, err := again.Get(t.Context(), newClient(t, again), "/", Format{Accept: JSON}); err != nil {
		t.Error(err)
	}
	if again.Name != s.Name || again.PID != 0 {
		t.Errorf("%+v", again.Process)
	}
}
