// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

// originTimeout is how long origins may take to respond in these tests.
const originTimeout = 4 * time.Second

// originRequests and originWatches limit what is passed on to one cluster in these tests.
const originRequests, originWatches = 3, 2

// origin is a simulated cluster behind a server that sees the requests.
type origin struct {
	server *httptest.Server
	config *rest.Config
	// end ends the run of the fleet that reads it.
	end func()
	// lends means that the cluster takes every caller for one user.
	lends atomic.Bool

	mu sync.Mutex
	// answer, unless it is nil, responds in place of the cluster if it returns true.
	answer func(w http.ResponseWriter, r *http.Request) bool
}

func newOrigin(t *testing.T, c *simulated.Cluster) *origin {
	t.Helper()
	cfg := c.Config()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
	}
	o := &origin{}
	o.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		answer := o.answer
		o.mu.Unlock()
		if r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" && !o.lends.Load() {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if answer == nil || !answer(w, r) {
			pass.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		o.server.CloseClientConnections()
		o.server.Close()
		if idle, ok := transport.(interface{ CloseIdleConnections() }); ok {
			idle.CloseIdleConnections()
		}
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.server.Certificate().Raw})
	o.config = &rest.Config{
		Host: o.server.URL, BearerToken: "of-the-replica", TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
	return o
}

// answers sets the function that responds in place of the cluster.
func (o *origin) answers(answer func(http.ResponseWriter, *http.Request) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

// newOrigins returns a replica of simulated clusters behind origins. prepare may change
// the origins before the replica starts.
func newOrigins(t *testing.T, clusters int, prepare func([]*origin)) (*simulatedReplica, []*origin) {
	t.Helper()
	return newOriginsWith(t, clusters, prepare, &replica.Options{
		OriginTimeout: originTimeout, OriginRequests: originRequests, OriginWatches: originWatches,
	})
}

// newOriginsWith is newOrigins with other options of the replica.
func newOriginsWith(
	t *testing.T, clusters int, prepare func([]*origin), opts *replica.Options,
) (*simulatedReplica, []*origin) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	s, err := simulated.New(&simulated.Options{Clusters: clusters, Pods: 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var entries []fleet.Entry
	var origins []*origin
	for i := range clusters {
		o := newOrigin(t, s.Cluster(i))
		origins = append(origins, o)
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: o.config})
	}
	if prepare != nil {
		prepare(origins)
	}
	w, _, end := serve(t, s, entries, opts)
	for _, o := range origins {
		o.end = end
	}
	return w, origins
}

// ask returns the code of a response, its headers and, if the body is a status, the
// status.
func (w *simulatedReplica) ask(path string, header ...string) (int, http.Header, metav1.Status) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	resp, err := w.get(ctx, path, header...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	var status metav1.Status
	_ = json.Unmarshal(body, &status)
	return resp.StatusCode, resp.Header, status
}

// until sends requests until the response has a code.
func (w *simulatedReplica) until(code int, path string) http.Header {
	w.t.Helper()
	var header http.Header
	expect.Eventually(w.t, time.Minute, func() error {
		got, now, status := w.ask(path)
		if header = now; got != code {
			return fmt.Errorf("%s: %d %s", path, got, status.Message)
		}
		return nil
	})
	return header
}

// isRead reports whether a request to an origin was sent by a test, not by the replica
// itself.
func isRead(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "mine") }

// TestOrigin_isAskedByTheReplica: a request that is passed on has the replica's
// credentials, and only those headers of the client that concern the form of the
// response.
func TestOrigin_isAskedByTheReplica(t *testing.T) {
	w, origins := newOrigins(t, 1, nil)
	w.until(http.StatusOK, w.pods(0))
	asked := make(chan *http.Request, 2)
	origins[0].answers(func(_ http.ResponseWriter, r *http.Request) bool {
		if isRead(r) {
			asked <- r.Clone(context.Background())
		}
		return false
	})
	client := []string{
		"Authorization", "Bearer of-the-client", "Cookie", "of=client", "X-Remote-User", "somebody",
		"Proxy-Authorization", "Basic xyz", "X-Forwarded-For", "10.0.0.1", "Te", "trailers", "User-Agent",
		"of-the-client", "Accept", "application/yaml", "Range", "bytes=0-1",
	}
	for query, header := range map[string][]string{
		"?limit=3&labelSelector=mine&watershedRead=consistent":        client,
		"?watershedRead=consistent&limit=3&labelSelector=mine%2Cyour": client,
		"?limit=3&labelSelector=mine": append([]string{"Watershed-Read", "consistent"},
			client...),
	} {
		_, got, _ := w.ask(w.pods(0)+query, header...)
		if got.Get("Watershed-Source") != "origin" {
			t.Fatalf("%s: it is not from the origin: %v", query, got)
		}
		r := <-asked
		if r.Header.Get("Authorization") != "Bearer of-the-replica" ||
			r.Host != strings.TrimPrefix(origins[0].server.URL, "https://") ||
			r.Header.Get("Accept") != "application/yaml" {
			t.Errorf("%s: the origin %s is asked %v", query, r.Host, r.Header)
		}
		for _, name := range []string{
			"Cookie", "X-Remote-User", "Proxy-Authorization", "X-Forwarded-For", "Te", "Watershed-Read", "Range",
		} {
			if values := r.Header.Values(name); len(values) > 0 {
				t.Errorf("%s: the origin receives %s: %q", query, name, values)
			}
		}
		if q := r.URL.Query(); q.Has("watershedRead") || q.Get("limit") != "3" ||
			!strings.HasPrefix(q.Get("labelSelector"), "mine") || r.URL.Path != "/api/v1/pods" {
			t.Errorf("%s: the origin is asked %s", query, r.URL)
		}
	}
}

// TestOrigin_saysWhatItSays: the response is the origin's, except for headers that
// concern its connection.
func TestOrigin_saysWhatItSays(t *testing.T) {
	w, origins := newOrigins(t, 1, nil)
	w.until(http.StatusOK, w.pods(0))
	says := http.Header{
		"Content-Type": {"application/json"}, "Retry-After": {"7"}, "Warning": {`299 - "one"`, `299 - "two"`},
		"Audit-Id":                       {"a-b-c"},
		"X-Kubernetes-Pf-Flowschema-Uid": {"uid"}, "Etag": {`"x"`},
	}
	origins[0].answers(func(w http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		for name, values := range says {
			w.Header()[name] = values
		}
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"kind":"Status","code":429,"message":"later"}`))
		return true
	})
	code, header, status := w.ask(w.pods(0)+"?labelSelector=mine", "Watershed-Read", "consistent")
	if code != http.StatusTooManyRequests || status.Message != "later" {
		t.Errorf("the answer is %d %+v", code, status)
	}
	for name, want := range says {
		if got := header.Values(name); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if header.Get("Connection") != "" {
		t.Errorf("the headers have %v", header)
	}
	// A response that breaks off must not look complete.
	origins[0].answers(func(w http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PodList","items":[`))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := w.get(t.Context(), w.pods(0)+"?labelSelector=mine", "Watershed-Read", "consistent")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("half an answer ends without an error: %s", body)
	}
}

// TestOrigin_isLeftWithTheClient: when the client disconnects, the request to the origin
// ends.
func TestOrigin_isLeftWithTheClient(t *testing.T) {
	w, origins := newOrigins(t, 1, nil)
	w.until(http.StatusOK, w.pods(0))
	for _, begun := range []bool{false, true} {
		reached, left := make(chan struct{}), make(chan struct{})
		origins[0].answers(func(w http.ResponseWriter, r *http.Request) bool {
			if !isRead(r) {
				return false
			}
			if begun {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte("{}\n"))
				_ = http.NewResponseController(w).Flush()
			}
			close(reached)
			<-r.Context().Done()
			close(left)
			return true
		})
		ctx, cancel := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		asking.Go(func() {
			resp, err := w.get(ctx, w.pods(0)+"?watch=1&labelSelector=mine&watershedRead=consistent")
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
		<-reached
		cancel()
		asking.Wait()
		select {
		case <-left:
		case <-time.After(time.Minute):
			t.Fatalf("the origin is still asked (its answer has begun: %v)", begun)
		}
		origins[0].answers(nil)
	}
}

// TestOrigin_isNotWaitedForForever: an origin that accepts a request and does not respond
// times out. A watch that has begun may be silent.
func TestOrigin_isNotWaitedForForever(t *testing.T) {
	w, origins := newOrigins(t, 1, nil)
	w.until(http.StatusOK, w.pods(0))
	origins[0].answers(func(w http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		if r.URL.Query().Has("watch") {
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(originTimeout + time.Second) // the watch is silent for longer than the timeout
			_, _ = w.Write([]byte("event\n"))
			return true
		}
		<-r.Context().Done()
		return true
	})
	var watching sync.WaitGroup
	watching.Go(func() {
		start := time.Now()
		resp, err := w.get(t.Context(), w.pods(0)+"?watch=1&labelSelector=mine", "Watershed-Read", "consistent")
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if begun := time.Since(start); begun > originTimeout {
			t.Errorf("the watch began after %v, with its first event", begun)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "event\n" {
			t.Errorf("a silent watch ended with %q, %v", body, err)
		}
	})
	code, _, status := w.ask(w.pods(0)+"?labelSelector=mine", "Watershed-Read", "consistent")
	if code != http.StatusGatewayTimeout || status.Reason != metav1.StatusReasonTimeout {
		t.Errorf("the answer is %d %+v", code, status)
	}
	watching.Wait()
}

// TestFleet_saysNothingOfWhatItHasNotRead: before any cluster has synced, the fleet is
// not reported as empty, and an object that is not in the clusters that have synced may
// be in the others.
func TestFleet_saysNothingOfWhatItHasNotRead(t *testing.T) {
	open := []chan struct{}{make(chan struct{}), make(chan struct{})}
	w, _ := newOrigins(t, 2, func(origins []*origin) {
		for i, o := range origins {
			o.answers(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/api/v1/pods" {
					select {
					case <-open[i]:
					case <-r.Context().Done():
					}
				}
				return false
			})
		}
	})
	const all, absent = "/fleet/api/v1/pods", "/fleet/api/v1/namespaces/default/pods/absent"
	w.until(http.StatusTooManyRequests, all)
	for _, path := range []string{
		all, all + "?limit=3", all + "?watch=1&timeoutSeconds=1&watershedFleet=keyed-by-cluster", absent,
	} {
		if code, header, status := w.ask(path); code != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
			t.Errorf("%s before anything was read: %d %+v", path, code, status)
		}
	}
	close(open[0])
	header := w.until(http.StatusOK, all)
	if name := w.clusters.Cluster(1).Name(); !strings.Contains(strings.Join(header.Values("Warning"), " "), name) {
		t.Errorf("a list without %s warns of %q", name, header.Values("Warning"))
	}
	if code, _, status := w.ask(absent); code != http.StatusServiceUnavailable ||
		!strings.Contains(status.Message, w.clusters.Cluster(1).Name()) {
		t.Errorf("what may be in a cluster that was not read: %d %+v", code, status)
	}
	pod := w.clusters.Cluster(0).Pod(0)
	there := "/fleet/api/v1/namespaces/" + pod.Namespace + "/pods/" + pod.Name
	if code, _, status := w.ask(there); code != http.StatusOK {
		t.Errorf("what is in the cluster that was read: %d %+v", code, status)
	}
	close(open[1])
	w.until(http.StatusNotFound, absent)
}

// TestFleet_watchesEndWithIt: when the fleet stops, its watches end.
func TestFleet_watchesEndWithIt(t *testing.T) {
	w, origins := newOrigins(t, 2, nil)
	w.until(http.StatusOK, "/fleet/api/v1/pods")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := w.get(ctx, "/fleet/api/v1/pods?watch=1&allowWatchBookmarks=true&watershedFleet=keyed-by-cluster")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	origins[0].end()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("after %d bytes: %v", n, err)
	}
}
