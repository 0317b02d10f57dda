// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// passedRequests and passedConnections limit what is passed on to one cluster for callers
// in these tests.
const passedRequests, passedConnections = 4, 4

// newPassing returns a replica that passes requests on.
func newPassing(t *testing.T, clusters int) (*simulatedReplica, []*origin) {
	t.Helper()
	w, origins := newOriginsWith(t, clusters, nil, &replica.Options{
		OriginTimeout: originTimeout, PassThrough: true, PassedRequests: passedRequests,
		PassedConnections: passedConnections,
		Authorize: func(r *http.Request, _ *replica.Request) (*replica.Access, error) {
			return &replica.Access{User: r.Header.Get("Authorization")}, nil
		},
	})
	for i := range clusters {
		w.untilCopied(i)
	}
	return w, origins
}

// untilCopied waits until the copy of a cluster answers. Until then its requests are passed
// on.
func (w *simulatedReplica) untilCopied(cluster int) {
	w.t.Helper()
	expect.Soon(w.t, "the copy answers", func() bool {
		return w.until(http.StatusOK, w.pods(cluster)).Get("Watershed-Age") != ""
	})
}

// send sends a request and returns the response with its body.
func (w *simulatedReplica) send(method, path, body string, header ...string) (*http.Response, string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	// HTTP/2 has no Connection header, and a client would follow redirects.
	transport := &http.Transport{
		TLSClientConfig: w.client.Transport.(*http.Transport).TLSClientConfig.Clone(), DisableKeepAlives: true,
	}
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(text)
}

// root returns the path of the API of a cluster.
func (w *simulatedReplica) root(cluster int) string {
	return "/clusters/" + w.clusters.Cluster(cluster).Name()
}

// TestPassThrough_credentials checks that requests which are passed on have the credentials of
// the caller and never those of the replica, also if the caller has none, and that no header
// reaches the cluster by which a client could claim to be another user.
func TestPassThrough_credentials(t *testing.T) {
	w, origins := newPassing(t, 1)
	var mu sync.Mutex
	var seen []*http.Request
	var bodies []string
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer of-the-replica" && !isRead(r) {
			return false
		}
		text, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen, bodies = append(seen, r), append(bodies, string(text))
		mu.Unlock()
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(rw, `{"kind":"ConfigMap","metadata":{"resourceVersion":"7"}}`)
		return true
	})
	body := `{"metadata":{"name":"a"}}`
	large := strings.Repeat("x", 1<<20)
	path := w.root(0) + "/api/v1/namespaces/n/configmaps?fieldManager=mine"
	for _, c := range []struct {
		name, body string
		header     []string
		want       []string // the values of Authorization at the cluster
	}{
		{"a token", body, []string{"Authorization", "Bearer mine"}, []string{"Bearer mine"}},
		{"a large body", large, []string{"Authorization", "Bearer mine"}, []string{"Bearer mine"}},
		{"no credentials", body, nil, nil},
		// CVE-2021-31999: a proxy that treats Authorization as a header of the hop drops the
		// token, and its transport adds its own.
		{
			"Connection names Authorization",
			body,
			[]string{"Authorization", "Bearer mine", "Connection", "Authorization, X-Foo"},
			[]string{"Bearer mine"},
		},
		{
			"Connection names Impersonate-User",
			body,
			[]string{"Authorization", "Bearer mine", "Impersonate-User", "bob", "Connection", "Impersonate-User"},
			[]string{"Bearer mine"},
		},
		{"claims of a proxy", body,
			[]string{"Authorization", "Bearer mine", "X-Remote-User", "admin", "X-Remote-Group", "system:masters",
				"X-Remote-Extra-A", "b",
				"X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "x", "Forwarded", "for=1.2.3.4", "X-Real-Ip",
				"1.2.3.4", "Cookie", "a=b", "Proxy-Authorization", "Basic x"}, []string{"Bearer mine"}},
	} {
		mu.Lock()
		seen, bodies = nil, nil
		mu.Unlock()
		resp, text := w.send(http.MethodPost, path, c.body, append(c.header, "Content-Type", "application/json")...)
		mu.Lock()
		if resp.StatusCode != http.StatusCreated || !strings.Contains(text, "ConfigMap") ||
			resp.Header.Get("Watershed-Source") != "passed-on" {
			t.Errorf("%s: %d %s %v", c.name, resp.StatusCode, text, resp.Header)
		}
		if len(seen) != 1 || bodies[0] != c.body {
			t.Errorf("%s: the cluster has received %d requests", c.name, len(seen))
			mu.Unlock()
			continue
		}
		h := seen[0].Header
		if got := h["Authorization"]; !slices.Equal(got, c.want) {
			t.Errorf("%s: the cluster has received Authorization %q, want %q", c.name, got, c.want)
		}
		if seen[0].TLS != nil && len(seen[0].TLS.PeerCertificates) > 0 {
			t.Errorf("%s: the connection has a client certificate", c.name)
		}
		for name := range h {
			switch name {
			case "Authorization", "Content-Type", "Content-Length", "User-Agent", "Impersonate-User":
			case "X-Forwarded-For":
				if got := h[name]; !slices.Equal(got, []string{"127.0.0.1"}) {
					t.Errorf("%s: X-Forwarded-For %q", c.name, got)
				}
			default:
				t.Errorf("%s: the cluster has received %s", c.name, name)
			}
		}
		if seen[0].URL.Path != "/api/v1/namespaces/n/configmaps" || seen[0].URL.RawQuery != "fieldManager=mine" ||
			seen[0].Method != http.MethodPost {
			t.Errorf("%s: the cluster has received %s %s", c.name, seen[0].Method, seen[0].URL)
		}
		if slices.Contains(c.header, "Impersonate-User") && h.Get("Impersonate-User") != "bob" {
			t.Errorf("%s: the request is not that of bob", c.name)
		}
		mu.Unlock()
	}
}

// TestPassThrough_responses checks what of a response reaches the client: neither cookies nor
// demands for credentials, no redirect to another server (CVE-2022-3172), and no page for a
// browser.
func TestPassThrough_responses(t *testing.T) {
	w, origins := newPassing(t, 1)
	var answer atomic.Pointer[http.HandlerFunc]
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		(*answer.Load())(rw, r)
		return true
	})
	for _, c := range []struct {
		name     string
		path     string
		code     int
		header   []string
		want     int
		location string
	}{
		{
			name:   "a redirect to another server",
			path:   "/api/v1/nodes/n/proxy/",
			code:   302,
			header: []string{"Location", "https://evil.example/"},
			want:   502,
		},
		{
			name:   "a redirect without a scheme",
			path:   "/api/v1/nodes/n/proxy/",
			code:   302,
			header: []string{"Location", "//evil.example/"},
			want:   502,
		},
		{
			name:   "a redirect with a backslash",
			path:   "/api/v1/nodes/n/proxy/",
			code:   302,
			header: []string{"Location", `/\evil.example/`},
			want:   502,
		},
		{
			name:   "a redirect that climbs",
			path:   "/api/v1/nodes/n/proxy/",
			code:   302,
			header: []string{"Location", "/../b/api"},
			want:   502,
		},
		{name: "a redirect without a location", path: "/api/v1/nodes/n/proxy/", code: 302, want: 502},
		{
			name:   "a redirect of an aggregated API",
			path:   "/apis/metrics.k8s.io/v1beta1/nodes",
			code:   307,
			header: []string{"Location", "https://evil.example/"},
			want:   502,
		},
		{
			name:     "a redirect in the cluster",
			path:     "/api/v1/nodes/n/proxy/a",
			code:     301,
			header:   []string{"Location", "/api/v1/nodes/n/proxy/a/?b=c"},
			want:     301,
			location: w.root(0) + "/api/v1/nodes/n/proxy/a/?b=c",
		},
		{
			name:   "a page in place of an object",
			path:   "/api/v1/secrets",
			code:   200,
			header: []string{"Content-Type", "text/html"},
			want:   502,
		},
		{
			name:   "a page of a program in the cluster",
			path:   "/api/v1/nodes/n/proxy/",
			code:   200,
			header: []string{"Content-Type", "text/html"},
			want:   200,
		},
		{
			name: "cookies and demands",
			path: "/api/v1/secrets",
			code: 401,
			want: 401,
			header: []string{
				"Content-Type", "application/json", "Set-Cookie", "a=b", "Www-Authenticate", "Basic", "Refresh", "0",
				"Alt-Svc", "h3=1",
			},
		},
	} {
		f := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(c.header); i += 2 {
				rw.Header().Add(c.header[i], c.header[i+1])
			}
			rw.WriteHeader(c.code)
		})
		answer.Store(&f)
		resp, text := w.send(http.MethodGet, w.root(0)+c.path+"?mine", "", "Authorization", "Bearer mine")
		if resp.StatusCode != c.want || resp.Header.Get("Location") != c.location {
			t.Errorf("%s: %d to %q, want %d to %q: %s", c.name, resp.StatusCode, resp.Header.Get("Location"), c.want,
				c.location, text)
		}
		for _, name := range []string{"Set-Cookie", "Www-Authenticate", "Refresh", "Alt-Svc"} {
			if resp.Header.Get(name) != "" {
				t.Errorf("%s: the client has received %s", c.name, name)
			}
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: a browser may guess the type", c.name)
		}
	}
}

// dial opens an HTTP/1 connection to the replica.
func (w *simulatedReplica) dial() net.Conn {
	w.t.Helper()
	config := w.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	c, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// upgrade asks for another protocol, and returns the response.
func (w *simulatedReplica) upgrade(c net.Conn, path string) (*http.Response, *bufio.Reader) {
	w.t.Helper()
	_, err := fmt.Fprintf(c,
		"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Bearer mine\r\nConnection: "+
			"Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", path)
	if err != nil {
		w.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, r
}

// echo takes over a connection, and sends back what it receives.
func echo(w http.ResponseWriter, protocol string) {
	c, b, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
		"%s\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", protocol)
	_, _ = io.Copy(c, b)
}

// TestPassThrough_upgrades checks terminals: bytes pass in both directions, the end of either
// side ends the other, and a request that the cluster does not upgrade leaves no connection
// over which its client could send other requests to the cluster (CVE-2018-1002105).
func TestPassThrough_upgrades(t *testing.T) {
	w, origins := newPassing(t, 1)
	path := w.root(0) + "/api/v1/namespaces/n/pods/p/exec?command=sh&mine"
	var requests atomic.Int32
	ended := make(chan struct{}, 10)
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		requests.Add(1)
		if r.Header.Get("Authorization") != "Bearer mine" || r.Header.Get("Upgrade") != "SPDY/3.1" ||
			r.Header.Get("X-Stream-Protocol-Version") == "" {
			t.Errorf("the cluster has received %v", r.Header)
		}
		echo(rw, "SPDY/3.1")
		ended <- struct{}{}
		return true
	})
	for _, text := range []string{"hello", strings.Repeat("0123456789", 100_000)} {
		c := w.dial()
		resp, r := w.upgrade(c, path)
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "SPDY/3.1" ||
			resp.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		go func() { _, _ = io.WriteString(c, text) }()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
		_ = c.Close()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the connection to the cluster stays open")
		}
	}
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		requests.Add(1)
		http.Error(rw, "no", http.StatusForbidden)
		return true
	})
	requests.Store(0)
	c := w.dial()
	resp, r := w.upgrade(c, path)
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("an upgrade that is refused: %d", resp.StatusCode)
	}
	// What follows is a request to the replica, not one to the cluster.
	_, _ = io.WriteString(c, "GET /api/v1/secrets?mine HTTP/1.1\r\nHost: x\r\n\r\n")
	if next, err := http.ReadResponse(r, nil); err == nil {
		if next.Header.Get("Watershed-Source") == "" && next.StatusCode == http.StatusOK {
			t.Errorf("the next request: %d %v", next.StatusCode, next.Header)
		}
	}
	// A protocol that the client has not asked for.
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		echo(rw, "websocket")
		return true
	})
	resp, _ = w.upgrade(w.dial(), path)
	if resp.StatusCode != http.StatusBadGateway {
		t.Errorf("another protocol: %d", resp.StatusCode)
	}
}

// TestPassThrough_isBounded checks that a cluster that does not answer takes a limited number
// of requests, that one user cannot take all of them, and that neither other clusters nor the
// copy are affected.
func TestPassThrough_isBounded(t *testing.T) {
	w, origins := newPassing(t, 2)
	reached := make(chan struct{}, 100)
	origins[0].answers(func(_ http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		reached <- struct{}{}
		<-r.Context().Done()
		return true
	})
	path := "/api/v1/namespaces/n/secrets/a?mine"
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for i := range passedRequests {
		asking.Go(func() {
			user := fmt.Sprintf("Bearer %d", i/(passedRequests/2))
			if resp, err := w.get(ctx, w.root(0)+path, "Authorization", user); err == nil {
				_ = resp.Body.Close()
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		<-reached
		if i == passedRequests/2-1 {
			if code, _, status := w.ask(w.root(0)+path, "Authorization",
				"Bearer 0"); code != http.StatusTooManyRequests || !strings.Contains(status.Message, "of this user") {
				t.Errorf("one user: %d %s", code, status.Message)
			}
		}
	}
	if code, header, status := w.ask(w.root(0)+path, "Authorization", "Bearer 9"); code != http.StatusTooManyRequests ||
		header.Get("Retry-After") != "1" {
		t.Errorf("one more: %d %s", code, status.Message)
	}
	if code, _, status := w.ask(w.pods(0)); code != http.StatusOK {
		t.Errorf("the copy: %d %s", code, status.Message)
	}
	if code, _, _ := w.ask(w.root(1)+path, "Authorization", "Bearer 0"); code == http.StatusTooManyRequests {
		t.Error("the other cluster is affected")
	}
	cancel()
	asking.Wait()
}

// TestPassThrough_fleet checks that nothing below /fleet is passed on, and that a refusal names
// the cluster to write to.
func TestPassThrough_fleet(t *testing.T) {
	w, origins := newPassing(t, 2)
	for _, o := range origins {
		o.answers(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Authorization") == "Bearer mine" {
				t.Errorf("%s %s is passed on", r.Method, r.URL)
			}
			return false
		})
	}
	w.until(http.StatusOK, "/fleet/api/v1/pods")
	name := w.clusters.Cluster(1).Name()
	for key := range w.truth(1) {
		namespace, pod, _ := strings.Cut(key, "/")
		_, there := w.truth(0)[key]
		for _, method := range []string{http.MethodDelete, http.MethodPut, http.MethodPatch} {
			resp, text := w.send(method, "/fleet/api/v1/namespaces/"+namespace+"/pods/"+pod, "{}", "Authorization",
				"Bearer mine")
			if resp.StatusCode != http.StatusMethodNotAllowed || !strings.Contains(text, "/clusters/") ||
				!strings.Contains(text, name) {
				t.Fatalf("%s of a pod of %s, which is elsewhere too: %t: %d %s", method, name, there, resp.StatusCode,
					text)
			}
		}
		break
	}
	resp, text := w.send(http.MethodPost, "/fleet/api/v1/namespaces/n/pods", "{}", "Authorization", "Bearer mine")
	if resp.StatusCode != http.StatusMethodNotAllowed || !strings.Contains(text, "at /clusters/NAME") {
		t.Errorf("create: %d %s", resp.StatusCode, text)
	}
}

// TestFleet_refusedWrites checks which address a refused write below /fleet names: the API server, or the path
// below /clusters if that passes the caller's requests on.
func TestFleet_refusedWrites(t *testing.T) {
	for _, c := range []struct {
		name             string
		passes, withheld bool
	}{
		{"without pass-through", false, false},
		{"credentials that cannot be passed on", true, true},
		{"with pass-through", true, false},
	} {
		for clusters := 1; clusters <= 2; clusters++ {
			t.Run(fmt.Sprintf("%s/%d clusters", c.name, clusters), func(t *testing.T) {
				access := &replica.Access{}
				if c.withheld {
					access.NoPassThrough = "withheld"
				}
				w, origins := newOriginsWith(t, clusters, nil, &replica.Options{
					PassThrough: c.passes,
					Authorize: func(*http.Request, *replica.Request) (*replica.Access, error) {
						return access, nil
					},
				})
				name := w.clusters.Cluster(0).Name()
				// The simulated clusters have the same pods.
				create, change := "write to the API server of a single cluster",
					"write to cluster "+name+", at "+origins[0].config.Host
				if c.passes && !c.withheld {
					create, change = "write to a single cluster, at /clusters/NAME",
						"write to cluster "+name+", at /clusters/"+name
				}
				if clusters > 1 {
					change = "write to the API server of the one of these clusters that you mean: " +
						name + ", " + w.clusters.Cluster(1).Name()
					if c.passes && !c.withheld {
						change = strings.Replace(change, "the API server of the one of these clusters that you mean",
							"the one of these clusters that you mean, at /clusters/NAME", 1)
					}
				}
				key := slices.Sorted(maps.Keys(w.truth(0)))[0]
				namespace, pod, _ := strings.Cut(key, "/")
				path := "/fleet/api/v1/namespaces/" + namespace + "/pods"
				expect.Soon(t, "all clusters can be read", func() bool {
					_, text := w.send(http.MethodGet, path+"?fieldSelector=metadata.name="+pod, "")
					return strings.Count(text, `"resourceVersion":`) == clusters+1 // the list has one too
				})
				for method, want := range map[string][2]string{
					http.MethodPost: {path, create}, http.MethodDelete: {path + "/" + pod, change},
				} {
					resp, text := w.send(method, want[0], "{}")
					var refused metav1.Status
					if err := json.Unmarshal([]byte(text), &refused); err != nil {
						t.Fatal(err)
					}
					if resp.StatusCode != http.StatusMethodNotAllowed || !strings.HasSuffix(refused.Message, want[1]) {
						t.Errorf("%s: %d %s, want %s", method, resp.StatusCode, refused.Message, want[1])
					}
				}
			})
		}
	}
}

// TestPassThrough_indistinctCallers: the address of the cluster leads to a proxy that answers all
// callers as one user. Nothing is passed on, and the copy still answers.
func TestPassThrough_indistinctCallers(t *testing.T) {
	w, origins := newOriginsWith(t, 1, func(origins []*origin) {
		origins[0].lends.Store(true)
	}, &replica.Options{OriginTimeout: originTimeout, PassThrough: true})
	w.until(http.StatusOK, w.pods(0))
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			rw.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(rw, `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"operator"}}}`)
			return true
		case r.Header.Get("Authorization") == userToken:
			t.Errorf("%s %s reaches the proxy", r.Method, r.URL)
		}
		return false
	})
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		resp, body := w.send(method, w.root(0)+"/api/v1/namespaces/n/secrets", "{}", "Authorization", userToken)
		if resp.StatusCode != http.StatusServiceUnavailable ||
			!strings.Contains(body, "callers are not distinguished by their tokens") {
			t.Errorf("%s: %d %s", method, resp.StatusCode, body)
		}
	}
	if resp, body := w.send(http.MethodGet, w.pods(0), "", "Authorization",
		userToken); resp.StatusCode != http.StatusOK || resp.Header.Get("Watershed-Age") == "" {
		t.Errorf("the copy: %d %s", resp.StatusCode, body)
	}
	if resp, body := w.send(http.MethodGet, w.root(0)+"/api/v1", "", "Authorization",
		userToken); resp.StatusCode != http.StatusOK {
		t.Errorf("discovery: %d %s", resp.StatusCode, body)
	}
}

// TestPassThrough_discoveryOfTheCopy: the copy answers with its own discovery only if the cluster
// does not, and if the caller may read it. A caller that the cluster refuses cannot make the copy
// answer with a body that is shorter than announced.
func TestPassThrough_discoveryOfTheCopy(t *testing.T) {
	const mayRead = "Bearer may-read"
	w, origins := newOriginsWith(t, 1, nil, &replica.Options{
		OriginTimeout: originTimeout, PassThrough: true,
		Authorize: func(r *http.Request, q *replica.Request) (*replica.Access, error) {
			if token := r.Header.Get("Authorization"); q.Passed || token == "" || token == mayRead {
				return &replica.Access{User: "u", Caller: "u"}, nil // if it is passed on, the cluster decides
			}
			return nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no right"))
		},
	})
	w.untilCopied(0)
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != userToken {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(rw,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		return true
	})
	path := w.root(0) + "/api/v1"
	if resp, text := w.send(http.MethodGet, path, "", "Authorization",
		userToken); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the cluster refuses: %d %s", resp.StatusCode, text)
	}
	config := w.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: 10\r\n\r\nabc", path,
		userToken)
	expect.NoError(t, conn.CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a body that ends early: %d", resp.StatusCode)
	}
	origins[0].server.CloseClientConnections()
	origins[0].server.Listener.Close()
	if resp, text := w.send(http.MethodGet, path, "", "Authorization",
		userToken); resp.StatusCode != http.StatusForbidden {
		t.Errorf("without the cluster and without the right: %d %s", resp.StatusCode, text)
	}
	if resp, text := w.send(http.MethodGet, path, "", "Authorization", mayRead); resp.StatusCode != http.StatusOK {
		t.Errorf("without the cluster and with the right: %d %s", resp.StatusCode, text)
	}
}
