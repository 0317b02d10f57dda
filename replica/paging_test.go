// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

// lists is a directory that has the lists of clusters that a test sends.
type lists chan []fleet.Entry

// Follow implements [fleet.Directory].
func (l lists) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	for {
		select {
		case entries := <-l:
			notify(entries)
		case <-ctx.Done():
			return nil
		}
	}
}

// TestList_clusterLeavesBetweenPages expects that a list of the fleet expires, and does not
// end without the objects of a cluster that had begun to be listed.
func TestList_clusterLeavesBetweenPages(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 4})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	var entries []fleet.Entry
	for i := range 2 {
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: s.Cluster(i).Config()})
	}
	clusters, quiet := make(lists), slog.New(slog.DiscardHandler)
	f, err := fleet.New(clusters, &fleet.Options{Resources: []string{"pods"}, History: 1 << 20, Logger: quiet})
	expect.NoError(t, err)
	server, err := replica.New(f, &replica.Options{Logger: quiet})
	expect.NoError(t, err)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() { _ = f.Run(ctx) })
	clusters <- entries
	expect.NoError(t, f.WaitForSync(t.Context()))
	page := func(more string) (code int, list metav1.PartialObjectMetadataList) {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"/fleet/api/v1/pods?limit=2&continue="+more, http.NoBody))
		if w.Code == http.StatusOK {
			expect.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
		}
		return w.Code, list
	}
	_, first := page("")
	code, _ := page(first.Continue)
	expect.Equal(t, code, http.StatusOK)
	clusters <- entries[:1] // the rest of the list has objects of the other cluster
	expect.Soon(t, "one cluster", func() bool { return f.Len() == 1 })
	if code, list := page(first.Continue); code != http.StatusGone {
		t.Errorf("the next page is %d with %d objects", code, len(list.Items))
	}
	code, again := page("")
	expect.Equal(t, code, http.StatusOK)
	code, _ = page(again.Continue)
	expect.Equal(t, code, http.StatusOK)
}
