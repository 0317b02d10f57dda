// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/openapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// origin is an API server that counts requests.
type origin struct {
	mu     sync.Mutex
	asked  map[string]int // requests by path
	bodies int            // responses other than 304
	tag    string         // of every document
	code   int            // instead of a document
	size   int            // of documents
	wait   chan struct{}  // before a response, if not nil
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.asked[r.URL.Path]++
	wait, code, tag, size := o.wait, o.code, o.tag, o.size
	o.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
	if code != 0 {
		w.WriteHeader(code)
		return
	}
	if r.URL.Path == "/openapi/v3" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=%[1]s"},"apis/a b/v1":{"serverRelativeURL":"/openapi/v3/apis/a%%20b/v1?hash=%[1]s"}}}`, tag)
		return
	}
	w.Header().Set("Etag", `"`+tag+`"`)
	if r.Header.Get("If-None-Match") == `"`+tag+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	o.mu.Lock()
	o.bodies++
	o.mu.Unlock()
	name, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	w.Header().Set("Content-Type", name+"; charset=utf-8")
	_, _ = w.Write([]byte(text(r.URL.Path+" "+r.Header.Get("Accept"), size)))
}

// text returns a document that does not compress.
func text(name string, size int) string {
	b := []byte(name + " ")
	random := rand.New(rand.NewPCG(1, 2))
	for len(b) < size {
		b = append(b, byte(random.Uint32()))
	}
	return string(b)
}

func (o *origin) set(change func(o *origin)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

// count returns how often a path was requested.
func (o *origin) count(path string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[path]
}

// await waits until a path has been requested n times.
func (o *origin) await(t *testing.T, path string, n int) {
	t.Helper()
	expect.Soon(t, fmt.Sprintf("%d requests for %s", n, path), func() bool { return o.count(path) >= n })
}

// start starts an origin, and returns its documents.
func start(t *testing.T, opts *openapi.Options) (*origin, *openapi.Documents) {
	t.Helper()
	o := &origin{asked: map[string]int{}, tag: "1"}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	c, err := kube.FromConfig(&rest.Config{Host: server.URL}, &kube.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return o, openapi.New(func() *kube.Cluster { return c }, opts)
}

// get requests a target, a path with a query, below a prefix.
func get(t *testing.T, d *openapi.Documents, target string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	return request(t.Context(), t, d, http.MethodGet, target, header)
}

func request(
	ctx context.Context, t *testing.T, d *openapi.Documents, method, target string, header http.Header,
) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, "https://example.com/clusters/x"+target, nil)
	if header != nil {
		r.Header = header
	}
	w := httptest.NewRecorder()
	if !d.Serve(w, r, strings.TrimPrefix(r.URL.Path, "/clusters/x")) {
		t.Fatalf("%s is not served", target)
	}
	return w
}

func wantCode(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Fatalf("%d %s, want %d", w.Code, w.Body, want)
	}
}

// TestServe_asksOnce: concurrent clients, and later ones, cause one request. A client
// that gives up does not affect the others.
func TestServe_asksOnce(t *testing.T) {
	o, d := start(t, nil)
	wait := make(chan struct{})
	o.set(func(o *origin) { o.wait = wait })
	impatient, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { request(impatient, t, d, http.MethodGet, "/openapi/v2", nil) })
	o.await(t, "/openapi/v2", 1)
	for range 20 {
		all.Go(func() {
			if w := get(t, d, "/openapi/v2", nil); w.Code != http.StatusOK ||
				w.Body.String() != "/openapi/v2 application/json " {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	cancel()
	o.await(t, "/openapi/v2", 2)
	close(wait)
	all.Wait()
	get(t, d, "/openapi/v2", nil)
	if n := o.count("/openapi/v2"); n != 2 {
		t.Errorf("%d requests, want that of the one that gave up and one more", n)
	}
}

// TestServe_asksAgain: a document is requested again when the copy is old, and when types
// have changed. Its body is sent only if it has changed.
func TestServe_asksAgain(t *testing.T) {
	o, d := start(t, &openapi.Options{Interval: time.Hour})
	for range 3 {
		wantCode(t, get(t, d, "/openapi/v2", nil), http.StatusOK)
	}
	if n := o.count("/openapi/v2"); n != 1 {
		t.Fatalf("%d requests at first", n)
	}
	d.Changed()
	wantCode(t, get(t, d, "/openapi/v2", nil), http.StatusOK)
	if n := o.count("/openapi/v2"); n != 2 {
		t.Fatalf("%d requests after a change", n)
	}
	if o.bodies != 1 {
		t.Fatalf("%d documents after a change that is none, want 1", o.bodies)
	}
	o.set(func(o *origin) { o.tag = "2" })
	d.Changed()
	if w := get(t, d, "/openapi/v2", nil); w.Header().Get("Etag") != `"2"` || o.bodies != 2 {
		t.Fatalf("%v after %d documents, want the new one", w.Header(), o.bodies)
	}
	if w := get(t, d, "/openapi/v2", http.Header{"If-None-Match": {`"0", W/"2"`}}); w.Code != http.StatusNotModified ||
		w.Body.Len() > 0 {
		t.Fatalf("%d %s, want 304 and nothing", w.Code, w.Body)
	}

	o, d = start(t, &openapi.Options{Interval: 50 * time.Millisecond})
	expect.Soon(t, "the document is requested again", func() bool {
		wantCode(t, get(t, d, "/openapi/v2", nil), http.StatusOK)
		return o.count("/openapi/v2") == 2
	})
	if o.bodies != 1 {
		t.Errorf("%d documents when the copy is old, want 1", o.bodies)
	}
}

// TestServe_outlivesTheOrigin: while the origin does not respond, the copy is served,
// without delay except for one client per interval. A refused document is not served.
func TestServe_outlivesTheOrigin(t *testing.T) {
	o, d := start(t, nil)
	wantCode(t, get(t, d, "/version", nil), http.StatusOK)
	for _, code := range []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusFound} {
		o.set(func(o *origin) { o.code = code })
		d.Changed()
		before := o.count("/version")
		for range 3 {
			wantCode(t, get(t, d, "/version", nil), http.StatusOK)
		}
		if n := o.count("/version") - before; n != 1 {
			t.Errorf("%d requests while the server answers %d, want 1", n, code)
		}
		wantCode(t, get(t, d, "/openapi/v2", nil), http.StatusServiceUnavailable)
	}
	wait := make(chan struct{})
	o.set(func(o *origin) { o.wait, o.code = wait, 0 })
	d.Changed()
	began := time.Now()
	wantCode(t, get(t, d, "/version", nil), http.StatusOK)
	if took := time.Since(began); took < time.Second || took > 20*time.Second {
		t.Errorf("a silent server costs %v, want two seconds", took)
	}
	close(wait)
	o.set(func(o *origin) { o.wait, o.code = nil, http.StatusForbidden })
	d.Changed()
	wantCode(t, get(t, d, "/version", nil), http.StatusForbidden)
	o.set(func(o *origin) { o.code = http.StatusBadGateway })
	d.Changed()
	wantCode(t, get(t, d, "/version", nil), http.StatusServiceUnavailable)
	nowhere := openapi.New(func() *kube.Cluster { return nil }, nil)
	wantCode(t, get(t, nowhere, "/openapi/v3", nil), http.StatusServiceUnavailable)
}

// TestServe_byHash: a document with its current hash never changes, another hash is
// redirected, and a path that is not in the index is not found.
func TestServe_byHash(t *testing.T) {
	o, d := start(t, &openapi.Options{Interval: time.Nanosecond})
	w := get(t, d, "/openapi/v3", nil)
	want := `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=1"},"apis/a b/v1":{"serverRelativeURL":"/openapi/v3/apis/a%20b/v1?hash=1"}}}`
	if w.Body.String() != want {
		t.Errorf("index is\n%s, want\n%s", w.Body, want)
	}
	for range 3 {
		w := get(t, d, "/openapi/v3/apis/a%20b/v1?hash=1", nil)
		wantCode(t, w, http.StatusOK)
		if cache := w.Header().Get("Cache-Control"); cache != "public, immutable" || w.Header().Get("Expires") == "" {
			t.Errorf("caching %q by hash", cache)
		}
	}
	if n := o.count("/openapi/v3/apis/a b/v1"); n != 1 {
		t.Errorf("%d requests for a hash that never changes", n)
	}
	if w := get(t, d, "/openapi/v3/api/v1", nil); w.Header().Get("Cache-Control") != "no-cache, private" {
		t.Errorf("header %v without a hash", w.Header())
	}
	o.set(func(o *origin) { o.tag = "2" })
	w = get(t, d, "/openapi/v3/apis/a%20b/v1?hash=0", nil)
	if w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != "?hash=2" {
		t.Errorf("another hash: %d %v", w.Code, w.Header())
	}
	if w := get(t, d, "/openapi/v3/apis/a%20b/v1?hash=2", nil); w.Code != http.StatusOK ||
		w.Header().Get("Etag") != `"2"` {
		t.Errorf("the new hash: %d %v", w.Code, w.Header())
	}
	for _, path := range []string{"/openapi/v3/", "/openapi/v3/nope", "/openapi/v3/../../api", "/openapi/v3/api/v1/"} {
		wantCode(t, get(t, d, path, nil), http.StatusNotFound)
		if n := o.count(path); n != 0 {
			t.Errorf("the server was asked for %s", path)
		}
	}
}

// TestServe_waitsForWhatTheIndexSays: a client that has a new index receives the new
// document, however fresh the copy of the old one is.
func TestServe_waitsForWhatTheIndexSays(t *testing.T) {
	const interval = 600 * time.Millisecond
	o, d := start(t, &openapi.Options{Interval: interval})
	get(t, d, "/openapi/v3", nil)
	time.Sleep(interval * 2 / 3) // the copy of the document is newer than that of the index
	wantCode(t, get(t, d, "/openapi/v3/api/v1?hash=1", nil), http.StatusOK)
	o.set(func(o *origin) { o.tag = "2" })
	// If the machine is busy, the request before has read the index again.
	expect.Soon(t, "the index has the new hash", func() bool {
		return strings.Contains(get(t, d, "/openapi/v3", nil).Body.String(), "hash=2")
	})
	if w := get(t, d, "/openapi/v3/api/v1?hash=2", nil); w.Code != http.StatusOK || w.Header().Get("Etag") != `"2"` {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestServe_encodings: encodings are separate copies, plain or compressed as the client
// accepts.
func TestServe_encodings(t *testing.T) {
	_, d := start(t, nil)
	const v2 = "/openapi/v2 " +
		"application/com.github.proto-openapi.spec.v2.v1.0+protobuf,application/com.github.proto-openapi.spec.v2@v1.0+protobuf "
	for accept, want := range map[string]string{
		"": "/openapi/v2 application/json ", "*/*": "/openapi/v2 application/json ", "text/html": "",
		"text/html, application/*;q=0.1": "/openapi/v2 " +
			"application/json ",
		"application/com.github.proto-openapi.spec.v2@v1.0+protobuf":                              v2,
		"application/com.github.proto-openapi.spec.v2.v1.0+protobuf":                              v2,
		"application/json;q=0.5, application/com.github.proto-openapi.spec.v2@v1.0+protobuf;q=.9": v2,
		"application/com.github.proto-openapi.spec.v3@v1.0+protobuf":                              "",
	} {
		for _, encoding := range []string{"", "gzip"} {
			w := get(t, d, "/openapi/v2", http.Header{"Accept": {accept}, "Accept-Encoding": {encoding}})
			if want == "" {
				wantCode(t, w, http.StatusNotAcceptable)
				continue
			}
			wantCode(t, w, http.StatusOK)
			if length := w.Header().Get("Content-Length"); length != fmt.Sprint(w.Body.Len()) ||
				w.Header().Get("Content-Type") != strings.Split(want, " ")[1] &&
					!strings.HasPrefix(strings.Split(want, " ")[1], w.Header().Get("Content-Type")+",") {
				t.Errorf("%d bytes with the header %v", w.Body.Len(), w.Header())
			}
			var body io.Reader = w.Body
			if encoding == "gzip" {
				var err error
				if body, err = gzip.NewReader(w.Body); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := io.ReadAll(body); err != nil || string(got) != want {
				t.Errorf("%q in %q is %q, %v, want %q", accept, encoding, got, err, want)
			}
		}
	}
	// The version is too short to be compressed.
	w := get(t, d, "/version", http.Header{"Accept-Encoding": {"gzip"}})
	if h := w.Header(); w.Body.String() != "/version application/json " || h.Get("Content-Encoding") != "" ||
		h.Get("Vary") != "" {
		t.Errorf("version is %q, with %v", w.Body, h)
	}
	if w := request(t.Context(), t, d, http.MethodPost, "/version", nil); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	r := httptest.NewRequest(http.MethodGet, "https://example.com/openapi/v2x", nil)
	if w := httptest.NewRecorder(); d.Serve(w, r, "/openapi/v2x") || w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("another path is served: %v", w.Header())
	}
}

// TestServe_keepsNoMoreThanItMay: the least recently requested copies are dropped, and a
// document that exceeds the bound alone is not kept at all.
func TestServe_keepsNoMoreThanItMay(t *testing.T) {
	o, d := start(t, &openapi.Options{Bytes: 10_000})
	o.set(func(o *origin) { o.size = 4_000 })
	for range 2 {
		for _, path := range []string{"/version", "/openapi/v2"} {
			wantCode(t, get(t, d, path, nil), http.StatusOK)
		}
	}
	if v, a := o.count("/version"), o.count("/openapi/v2"); v != 1 || a != 1 {
		t.Fatalf("%d and %d requests while there is room", v, a)
	}
	wantCode(t, get(t, d, "/version", nil), http.StatusOK)
	wantCode(t, get(t, d, "/openapi/v3/api/v1", nil), http.StatusOK)
	wantCode(t, get(t, d, "/version", nil), http.StatusOK)
	wantCode(t, get(t, d, "/openapi/v2", nil), http.StatusOK)
	if v, a := o.count("/version"), o.count("/openapi/v2"); v != 1 || a != 2 {
		t.Errorf("%d and %d requests, want the one that was not asked for longest gone", v, a)
	}
	o.set(func(o *origin) { o.size, o.tag = 20_000, "2" })
	d.Changed()
	for range 2 {
		if w := get(t, d, "/openapi/v2", nil); !bytes.Equal(w.Body.Bytes(),
			[]byte(text("/openapi/v2 application/json", 20_000))) {
			t.Errorf("%d bytes of a large document", w.Body.Len())
		}
	}
	if a := o.count("/openapi/v2"); a != 4 {
		t.Errorf("%d requests for what is too large to keep, want one each time", a)
	}
}
