// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// clusterOf returns a cluster whose server responds with a function.
func clusterOf(t *testing.T, serve http.HandlerFunc) *kube.Cluster {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	c, err := kube.FromConfig(&rest.Config{Host: server.URL, BearerToken: "secret"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

var widgets = kube.Query{
	Resource: schema.GroupVersionResource{Group: "x.example.com", Version: "v1", Resource: "widgets"},
}

// TestSend_redirects checks that credentials stay at their server: the transport adds them
// to every request.
func TestSend_redirects(t *testing.T) {
	var reached atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer other.Close()
	hops := 0
	c := clusterOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "widgets"):
			http.Redirect(w, r, other.URL, http.StatusFound)
		default:
			hops++
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}
	})
	none := func(*wire.Object) error { return nil }
	if _, err := c.List(t.Context(), widgets, none); err == nil ||
		!strings.Contains(err.Error(), "redirects to another server") {
		t.Errorf("a redirect to another server: %v", err)
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the other server received %d requests", n)
	}
	again := widgets
	again.Resource.Resource = "gadgets"
	if _, err := c.List(t.Context(), again, none); err == nil || hops > 5 {
		t.Errorf("a redirect to itself: %v after %d requests", err, hops)
	}
}

// TestDiscovery_fewDocumentsAtOnce checks that many callers of discovery do not hold many
// documents in memory.
func TestDiscovery_fewDocumentsAtOnce(t *testing.T) {
	var now, most atomic.Int64
	c := clusterOf(t, func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			continue
		}
		time.Sleep(5 * time.Millisecond) // other requests can arrive meanwhile
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_, _ = w.Write([]byte(`{"items":[]}`))
	})
	done := make(chan error)
	for range 20 {
		go func() {
			_, err := c.Resources(t.Context())
			done <- err
		}()
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load(); n > 2 {
		t.Errorf("%d documents at once", n)
	}
}
