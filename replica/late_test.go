// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"io"
	"net/http"
	"net/url"
	"sync"
	"testing"
)

// TestPassThrough_late checks that a read which the copy is too late for asks the cluster for
// its newest state, also if the client would accept any: the cache of the cluster may be late
// too.
func TestPassThrough_late(t *testing.T) {
	w, origins := newPassing(t, 1)
	var mu sync.Mutex
	var asked []url.Values
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer mine" {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			// The copy never has this version.
			_, _ = io.WriteString(rw, `{"kind":"Pod","metadata":{"resourceVersion":"9999999999"}}`)
			return true
		}
		mu.Lock()
		asked = append(asked, r.URL.Query())
		mu.Unlock()
		_, _ = io.WriteString(rw,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9999999999"},"items":[]}`)
		return true
	})
	mine := []string{"Authorization", "Bearer mine"}
	w.send(http.MethodPost, w.root(0)+"/api/v1/namespaces/n/pods", "{}",
		append(mine, "Content-Type", "application/json")...)
	for _, query := range []string{"resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=5", "limit=5"} {
		resp, text := w.send(http.MethodGet, w.root(0)+"/api/v1/namespaces/n/pods?"+query, "", mine...)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Watershed-Source") != "passed-on" {
			t.Errorf("%s: %d %s %v", query, resp.StatusCode, text, resp.Header)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 2 {
		t.Fatalf("the cluster was asked %d times, want 2", len(asked))
	}
	for _, query := range asked {
		if got := query.Encode(); got != "limit=5" {
			t.Errorf("the cluster was asked for %q, want its newest state", got)
		}
	}
}
