// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
)

var _ http.RoundTripper = (*kube.Cluster)(nil)

// pass sends a read through the cluster.
func pass(t *testing.T, c *kube.Cluster, method, path string, header http.Header) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(patient(t), method, "https://whatever.example.com"+path,
		strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	return c.RoundTrip(req)
}

// TestRoundTrip_isTheClustersOwn checks that the path is below the root, that the
// credentials are the cluster's, and that other headers of the request are dropped.
func TestRoundTrip_isTheClustersOwn(t *testing.T) {
	var seen *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Clone(context.Background())
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Etag", `"1"`)
		w.WriteHeader(http.StatusTeapot)
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte("tea"))
		_ = z.Close()
	}))
	defer server.Close()
	c := open(t, &rest.Config{Host: server.URL + "/below/this%2Fone", BearerToken: "own", UserAgent: "watershed"})
	resp, err := pass(t, c, http.MethodGet, "/api/v1/pods/a%2Fb?watch=1&x=%20", http.Header{
		"Accept":           {"application/yaml"},
		"Accept-Encoding":  {"gzip"},
		"If-None-Match":    {`"0"`},
		"Authorization":    {"Bearer stolen"},
		"Impersonate-User": {"system:admin"},
		"User-Agent":       {"curl"},
		"X-Remote-User":    {"admin"},
		"Cookie":           {"a=b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if want := "/below/this%2Fone/api/v1/pods/a%2Fb?watch=1&x=%20"; seen.RequestURI != want {
		t.Errorf("asked for %s, want %s", seen.RequestURI, want)
	}
	want := http.Header{
		"Accept":          {"application/yaml"},
		"Accept-Encoding": {"gzip"},
		"If-None-Match":   {`"0"`},
		"Authorization":   {"Bearer own"},
		"User-Agent":      {"watershed"},
	}
	if diff := gocmp.Diff(want, seen.Header); diff != "" {
		t.Errorf("headers, wanted (-) and sent (+):\n%s", diff)
	}
	if resp.StatusCode != http.StatusTeapot || resp.Header.Get("Etag") != `"1"` ||
		resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("answer is %s %v, want it as it came", resp.Status, resp.Header)
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != "tea" {
		t.Errorf("body is %q, %v", text, err)
	}
}

// TestRoundTrip_doesNotFollow checks that redirects are left to the caller.
func TestRoundTrip_doesNotFollow(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
	}))
	defer server.Close()
	resp, err := pass(t, open(t, &rest.Config{Host: server.URL}), http.MethodHead, "/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if asked != 1 || resp.StatusCode != http.StatusMovedPermanently || resp.Header.Get("Location") != "/elsewhere" {
		t.Errorf("%d requests and %s to %q, want one and the redirect", asked, resp.Status, resp.Header.Get("Location"))
	}
}

// TestRoundTrip_refuses checks that a request other than a read below the root is
// rejected before anything is sent.
func TestRoundTrip_refuses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s arrived", r.Method, r.URL)
	}))
	defer server.Close()
	c := open(t, &rest.Config{Host: server.URL + "/clusters/one"})
	for _, path := range []string{
		"/../two/api", "/api/..", "/api/%2e%2e/%2E%2E/two", "/x%2F..%2F..%2Ftwo", "/./api", "", "?x=y",
	} {
		if _, err := pass(t, c, http.MethodGet, path, nil); err == nil ||
			!strings.Contains(err.Error(), "in test: path") {
			t.Errorf("GET %q: %v", path, err)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodPatch, http.MethodConnect} {
		if _, err := pass(t, c, method, "/api", nil); err == nil || !strings.Contains(err.Error(), "not a read") {
			t.Errorf("%s: %v", method, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}
