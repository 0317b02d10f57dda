// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/openapi"
)

// answering returns documents of an origin that responds with a function.
func answering(t *testing.T, answer http.HandlerFunc) *openapi.Documents {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := kube.FromConfig(&rest.Config{Host: server.URL}, &kube.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return openapi.New(func() *kube.Cluster { return c }, nil)
}

// bomb returns a document of the given size in MB, compressed.
func bomb(t *testing.T, mb int) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	chunk := strings.Repeat("a", 1<<20)
	_, _ = io.WriteString(z, `{"paths":{"`)
	for range mb {
		_, _ = io.WriteString(z, chunk)
	}
	_, _ = io.WriteString(z, `":{}}}`)
	_ = z.Close()
	return b.Bytes()
}

// The bound applies to the size without compression: a small response must not take a lot
// of memory.
func TestServe_boundsPlainBytes(t *testing.T) {
	index, document := bomb(t, 16), bomb(t, 65)
	d := answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		if r.URL.Path == "/openapi/v3" {
			_, _ = w.Write(index)
			return
		}
		_, _ = w.Write(document)
	})
	for _, target := range []string{"/openapi/v3", "/openapi/v3/apis/none", "/openapi/v2"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := get(t, d, target, nil)
		runtime.ReadMemStats(&after)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "longer than") {
			t.Errorf("%s: %d %.200s", target, w.Code, w.Body)
		}
		if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 8 {
			t.Errorf("%s takes %d MB", target, mb)
		}
	}
}

// A response is served only with a media type that documents have: it could be a page
// with a script.
func TestServe_onlyKnownMediaTypes(t *testing.T) {
	says := ""
	d := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{says}
		_, _ = io.WriteString(w, `{"paths":{"api/v1":{}}}`)
	})
	for says = range map[string]bool{
		"text/html":                  true,
		"":                           true,
		"image/svg+xml":              true,
		"application/json+html":      true,
		"text/html;application/json": true,
	} {
		for _, target := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/version"} {
			d.Changed()
			w := get(t, d, target, nil)
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s as %q: %d %v", target, says, w.Code, w.Header())
			}
		}
	}
	for says = range map[string]bool{"application/json": true, "Application/JSON; charset=utf-8": true} {
		d.Changed()
		if w := get(t, d, "/openapi/v3/api/v1", nil); w.Code != http.StatusOK ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%q: %d %v", says, w.Code, w.Header())
		}
	}
}

// An API server with aggregation sends its index, which is JSON, as plain text. No other
// document may be plain text.
func TestServe_plainTextIndex(t *testing.T) {
	d := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, `{"paths":{"api/v1":{}}}`)
	})
	if w := get(t, d, "/openapi/v3", nil); w.Code != http.StatusOK ||
		w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("the index: %d %v", w.Code, w.Header())
	}
	if w := get(t, d, "/openapi/v3/api/v1", nil); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a document: %d %v", w.Code, w.Header())
	}
}

// A gzip stream of empty parts has any length and no content.
func TestServe_boundsCompressedBytes(t *testing.T) {
	var part bytes.Buffer
	empty := gzip.NewWriter(&part)
	empty.Extra = make([]byte, 4<<10) // fewer parts take less time
	_ = empty.Close()
	chunk := bytes.Repeat(part.Bytes(), 16)
	d := answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := get(t, d, "/openapi/v2", nil)
	runtime.ReadMemStats(&after)
	if w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "compressed response is longer than") {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 160 {
		t.Errorf("it takes %d MB", mb)
	}
}
