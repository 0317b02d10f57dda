// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// TestForward_upgradesUseNewConnections: the server has refused an upgrade, and the response
// lets the client use the connection again. The next upgrade does not, and is sent once.
func TestForward_upgradesUseNewConnections(t *testing.T) {
	var mu sync.Mutex
	requests := map[string]int{} // per connection
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			http.Error(w, "who are you?", http.StatusUnauthorized) // the check of callers
			return
		}
		mu.Lock()
		defer mu.Unlock()
		requests[r.RemoteAddr]++
		if len(r.Header["Idempotency-Key"]) > 0 {
			t.Error("the server receives an idempotency key")
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	c := open(t, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	const tries = 50
	for range tries {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/n/pods/p/exec",
			http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "SPDY/3.1")
		resp, err := c.Forward(req, "", false)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "no\n" {
			t.Errorf("body %q, %v", body, err)
		}
		_ = resp.Body.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(requests) != tries {
		t.Errorf("%d connections for %d upgrades", len(requests), tries)
	}
	for from, n := range requests {
		if n > 1 {
			t.Errorf("connection %s: %d upgrades", from, n)
		}
	}
}
