// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/query"
	"github.com/watershed-project/watershed/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	podResource        = corev1.SchemeGroupVersion.WithResource("pods")
	deploymentResource = appsv1.SchemeGroupVersion.WithResource("deployments")
	quiet              = slog.New(slog.DiscardHandler)
)

// byLabel returns an index function for a label.
func byLabel(key string) func(*wire.Object) []string {
	return func(o *wire.Object) []string {
		if value, ok := o.Label(key); ok {
			return []string{value}
		}
		return nil
	}
}

// background runs a function until the test ends.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		expect.NoError(t, <-ended)
	})
}

// newFactory returns a factory that does not run yet.
func newFactory(t *testing.T, cfg *rest.Config) *watershed.Factory {
	t.Helper()
	cluster, err := kube.FromConfig(cfg, nil)
	expect.NoError(t, err)
	t.Cleanup(cluster.CloseIdleConnections)
	return watershed.NewFactory(cluster, &watershed.FactoryOptions{Logger: quiet})
}

// ofFactory returns a handler for a factory that runs until the test ends.
func ofFactory(t *testing.T, cfg *rest.Config, r query.Resources, opts *query.Options) *query.Handler {
	t.Helper()
	f := newFactory(t, cfg)
	h, err := query.NewFactory(f, r, opts)
	expect.NoError(t, err)
	background(t, f.Run)
	expect.NoError(t, f.WaitForSync(t.Context()))
	t.Cleanup(h.Close)
	return h
}

// newFleet returns a fleet that does not run yet.
func newFleet(t *testing.T, resources []string, clusters map[string]*rest.Config) *fleet.Fleet {
	t.Helper()
	var entries []fleet.Entry
	for name, cfg := range clusters {
		entries = append(entries, fleet.Entry{Name: name, Config: cfg})
	}
	d, err := directory.NewStatic(entries...)
	expect.NoError(t, err)
	f, err := fleet.New(d, &fleet.Options{Resources: resources, Logger: quiet})
	expect.NoError(t, err)
	return f
}

// ofFleet returns a handler for a fleet that runs until the test ends.
func ofFleet(t *testing.T, clusters map[string]*rest.Config, r query.Resources, opts *query.Options) *query.Handler {
	t.Helper()
	var names []string
	for resource := range r {
		names = append(names, resource.GroupResource().String())
	}
	f := newFleet(t, names, clusters)
	h, err := query.NewFleet(f, r, opts)
	expect.NoError(t, err)
	background(t, f.Run)
	expect.NoError(t, f.WaitForSync(t.Context()))
	t.Cleanup(h.Close)
	return h
}

// send sends a request to a handler.
func send(h http.Handler, method, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, url, http.NoBody))
	return w
}

// response is the body of a list.
type response struct {
	Keys     []string          `json:"keys"`
	Items    []json.RawMessage `json:"items"`
	Continue string            `json:"continue"`
	Missing  []string          `json:"missing"`
}

// get reads a list.
func get(t *testing.T, h http.Handler, url string) response {
	t.Helper()
	w := send(h, http.MethodGet, url)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("GET %s: %d %s", url, w.Code, w.Body)
	}
	var r response
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("GET %s: %v: %s", url, err, w.Body)
	}
	return r
}
