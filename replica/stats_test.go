// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// TestStats counts each kind of request, and the bytes that the client has received.
func TestStats(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a page") })
	w := newSimulatedReplica(t, 2, 30, &replica.Options{Pages: map[string]http.Handler{"/metrics": page}})
	first := w.clusters.Cluster(0).Name()
	body, _ := w.read("/metrics")
	expect.Equal(t, string(body), "a page")
	received := uint64(len(body))
	for _, path := range []string{w.pods(0), w.pods(0) + "?limit=3", w.pods(1), "/fleet/api/v1/pods"} {
		body, _ := w.read(path, "Accept", "application/json", "Accept-Encoding", "identity")
		received += uint64(len(body))
	}
	for i := range 20 {
		for _, path := range []string{
			"/clusters/" + first + "/api/v1/made-up-%d",
			"/clusters/" + first + "/api/v1/namespaces/a/pods/b/made-up-%d", "/fleet/apis/made-up-%d/v1/pods",
		} {
			resp, err := w.get(t.Context(), fmt.Sprintf(path, i))
			expect.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			expect.NoError(t, err)
			resp.Body.Close()
			expect.Equal(t, resp.StatusCode, http.StatusNotFound)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := w.get(ctx, w.pods(0)+"?watch=true")
	expect.NoError(t, err)
	defer watch.Body.Close()
	expect.Soon(t, "watching", func() bool { return stats(w.server, first).Watches == 1 })
	s := w.server.Stats()
	expect.Equal(t, s.Open, 1)
	cancel()
	expect.Soon(t, "ended", func() bool {
		return stats(w.server, first).Watches == 0 && stats(w.server, first).Saved["WATCH"] == 1
	})

	s = w.server.Stats()
	expect.Equal(t, stats(w.server, first).Saved, map[string]uint64{"GET": 0, "LIST": 2, "WATCH": 1})
	// A list below /fleet saves one for each cluster.
	expect.Equal(t, stats(w.server, "").Saved, map[string]uint64{"GET": 0, "LIST": 2, "WATCH": 0})
	list := replica.RequestLabels{Verb: "LIST", Version: "v1", Resource: "pods", Scope: "cluster", Code: 200}
	watched := list
	watched.Verb = "WATCH"
	expect.Equal(t, s.Requests, map[replica.RequestLabels]uint64{
		list: 4, watched: 1,
		{Verb: "GET", Code: 200}: 1,
		{Verb: "LIST", Resource: "other", Scope: "cluster", Code: 404}: 40,
		{Verb: "GET", Resource: "other", Scope: "resource", Code: 404}: 20,
	})
	lists := uint64(0)
	for r, durations := range s.Durations {
		if r.Verb == "LIST" {
			lists += durations.Count
		}
	}
	expect.Equal(t, lists, 44)
	if sum := s.Bytes["GET"] + s.Bytes["LIST"]; sum < received {
		t.Errorf("%d bytes are counted, and the client has received %d", sum, received)
	}
}

// TestStats_labelsAreFew has a client make up thousands of names.
func TestStats_labelsAreFew(t *testing.T) {
	w := newSimulatedReplica(t, 1, 5, &replica.Options{})
	recorder := func(path string) {
		w.server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody))
	}
	for i := range 6000 {
		recorder(fmt.Sprintf("/clusters/%s/api/v1/pods/%d", w.clusters.Cluster(0).Name(), i))
		recorder(fmt.Sprintf("/clusters/%s/apis/g%d/v1/r", w.clusters.Cluster(0).Name(), i))
	}
	if n := len(w.server.Stats().Requests); n > 10 {
		t.Errorf("%d combinations of labels", n)
	}
}

// TestStats_cutClients counts clients that do not read.
func TestStats_cutClients(t *testing.T) {
	w := newSimulatedReplica(t, 1, 4000, &replica.Options{WriteTimeout: 2 * time.Second})
	resp, err := w.get(t.Context(), w.pods(0), "Accept", "application/json", "Accept-Encoding", "identity")
	expect.NoError(t, err)
	defer resp.Body.Close()
	expect.Eventually(t, 20*time.Second, func() error {
		if s := w.server.Stats(); s.Cut != 1 {
			return fmt.Errorf("%d clients are cut off, %d blocked for %s", s.Cut, s.Blocked, s.BlockedFor)
		}
		return nil
	})
}

// stats returns the counts of a cluster.
func stats(s *replica.Server, cluster string) replica.ClusterStats {
	return s.Stats().Clusters[cluster]
}

// TestStats_namesThatNoDiscoveryHas has a cluster that answers with success to a request for
// any resource.
func TestStats_namesThatNoDiscoveryHas(t *testing.T) {
	w, origins := newPassing(t, 1)
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/apis/made-up/") {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{}`)
		return true
	})
	for _, path := range []string{"/apis/made-up/v1/things", "/apis/made-up/v1/things%ff"} {
		resp, _ := w.send(http.MethodGet, w.root(0)+path, "", "Authorization", "Bearer mine")
		expect.Equal(t, resp.StatusCode, http.StatusOK)
	}
	for r := range w.server.Stats().Requests {
		if r.Group != "" || r.Resource != "" && r.Resource != "other" && r.Resource != "pods" {
			t.Errorf("labels of a resource that no discovery has: %+q", r.Group+"/"+r.Resource)
		}
	}
}
