// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/overload"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

// TestAdmission_costIsWhatIsRead compares the costs of requests with the number of objects
// that are read for them.
func TestAdmission_costIsWhatIsRead(t *testing.T) {
	const pods = 3000
	f, name := newPods(t, pods)
	var cost overload.Cost
	server, err := replica.New(f, &replica.Options{Logger: quiet,
		Admit: func(_ *http.Request, q *replica.Request) (func(), error) {
			cost = (&admission{fleet: f}).cost(q)
			return nil, apierrors.NewTooManyRequests("only the cost is of interest", 1)
		}})
	expect.NoError(t, err)
	all := overload.List(pods)
	root := "/clusters/" + name
	for path, want := range map[string]overload.Cost{
		root + "/api/v1/pods":                                                           all,
		root + "/api/v1/namespaces/a/pods":                                              overload.List(pods / 10),
		root + "/api/v1/namespaces/a/pods/x":                                            overload.Get,
		root + "/api/v1/pods?fieldSelector=metadata.name%3Dx":                           all,
		root + "/api/v1/pods?fieldSelector=metadata.name%3Dx&watch=1":                   all,
		root + "/api/v1/pods?fieldSelector=metadata.name%3Dx&watch=1&resourceVersion=5": overload.Get,
		root + "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx":              overload.Get,
		"/fleet/api/v1/pods?fieldSelector=metadata.name%3Dx":                            all,
		"/fleet/api/v1/namespaces/a/pods/x":                                             overload.Get,
		root + "/api/v1/namespaces/a/pods/x?changes=1h":                                 all,
		root + "/api/v1/namespaces/a/pods/x?at=1h":                                      all,
		root + "/api/v1/pods?at=1h&limit=10":                                            all,
		root + "/changes?since=1h":                                                      all,
		root + "/version":                                                               overload.Get,
	} {
		server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path,
			http.NoBody))
		if cost != want {
			t.Errorf("%s costs %d, want %d", path, cost, want)
		}
	}

	limited := &admission{fleet: f, limiter: overload.New(&overload.Options{Watches: 200})}
	var open []func()
	server, err = replica.New(f, &replica.Options{Logger: quiet,
		Admit: func(r *http.Request, q *replica.Request) (func(), error) {
			done, err := limited.admit(r, q, "user")
			if err == nil {
				open = append(open, done)
			}
			return nil, apierrors.NewTooManyRequests("only the number of watches is of interest", 1)
		}})
	expect.NoError(t, err)
	for range 10 {
		path := root + "/api/v1/pods?watch=1&resourceVersion=5&labelSelector=a!=" + strings.Repeat("b", 10_000)
		server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path,
			http.NoBody))
	}
	if len(open) != 100/overload.Places(10_000) {
		t.Errorf("%d watches with a selector of 10 KB are open", len(open))
	}
	for _, done := range open {
		done()
	}
}

// TestAdmission_startedWatches opens more watches than may start at the same time: one that has started
// makes place for the next.
func TestAdmission_startedWatches(t *testing.T) {
	f, name := newPods(t, 100)
	limited := &admission{fleet: f, limiter: overload.New(&overload.Options{
		Units: 4, WatchStart: time.Hour,
	})}
	handler, err := replica.New(f, &replica.Options{Logger: quiet,
		Admit: func(r *http.Request, q *replica.Request) (func(), error) { return limited.admit(r, q, "user") }})
	expect.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	member, _ := f.Member(name)
	feed, _ := member.Feed(schema.GroupResource{Resource: "pods"})
	now, err := feed.Now()
	expect.NoError(t, err)
	version := now.Version
	for i := range 20 {
		path := server.URL + "/clusters/" + name + "/api/v1/pods?watch=1"
		if i%2 == 0 { // it continues
			path += "&resourceVersion=" + strconv.FormatUint(version, 10)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		expect.NoError(t, err)
		response, err := server.Client().Do(r)
		expect.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		if response.StatusCode != http.StatusOK {
			t.Fatalf("watch %d is answered with %s", i, response.Status)
		}
	}
	// The header of the last one may be on its way before the watch has started.
	expect.Eventually(t, time.Minute, func() error {
		if s := limited.limiter.Stats(); s.InFlight != 0 || s.Watches != 20 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

var quiet = slog.New(slog.DiscardHandler)

// newPods returns a fleet of one cluster that has so many pods, and the name of the cluster.
func newPods(t *testing.T, pods int) (f *fleet.Fleet, name string) {
	t.Helper()
	s, err := simulated.New(&simulated.Options{Clusters: 1, Pods: pods, Namespaces: 10})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	name = s.Cluster(0).Name()
	clusters, err := directory.NewStatic(fleet.Entry{Name: name, Config: s.Cluster(0).Config()})
	expect.NoError(t, err)
	f, err = fleet.New(clusters, &fleet.Options{Resources: []string{"pods"}, History: 1 << 20, Logger: quiet})
	expect.NoError(t, err)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() { _ = f.Run(ctx) })
	expect.NoError(t, f.WaitForSync(t.Context()))
	return f, name
}
