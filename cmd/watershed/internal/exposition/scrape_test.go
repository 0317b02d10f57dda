// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package exposition_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/exposition"
	"github.com/watershed-project/watershed/cmd/watershed/internal/overload"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

// resources is how many resources each cluster has.
const resources = 60

// newPage returns the metrics of a fleet of simulated clusters.
func newPage(t *testing.T, clusters int) (*exposition.Page, *fleet.Fleet) {
	t.Helper()
	// Pods, namespaces, definitions and API services are the other four.
	s, err := simulated.New(&simulated.Options{
		Clusters: clusters, Pods: 10, Namespaces: 2, Types: resources - 4, Bookmarks: time.Hour,
	})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	var entries []fleet.Entry
	for i := range clusters {
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: s.Cluster(i).Config()})
	}
	d, err := directory.NewStatic(entries...)
	expect.NoError(t, err)
	logger := slog.New(slog.DiscardHandler)
	f, err := fleet.New(d, &fleet.Options{History: 256 << 20, Logger: logger})
	expect.NoError(t, err)
	control, err := access.New(f, access.Options{Logger: logger})
	expect.NoError(t, err)
	server, err := replica.New(f, &replica.Options{Logger: logger})
	expect.NoError(t, err)
	page := new(exposition.Page)
	expect.NoError(t, page.Open(exposition.Sources{
		Fleet:    f,
		Replica:  server,
		Access:   control,
		Limiter:  overload.New(nil),
		Problems: func() []fleet.Problem { return nil },
		Version:  "test",
		Logger:   logger,
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		expect.NoError(t, <-ended)
		control.Close()
	})
	wait, done := context.WithTimeout(t.Context(), 30*time.Minute)
	defer done()
	expect.NoError(t, f.WaitForSync(wait))
	// Requests for every cluster make its part of the replica's metrics.
	for _, m := range f.Members() {
		recorder := httptest.NewRecorder()
		server.ServeHTTP(recorder,
			httptest.NewRequest(http.MethodGet, "/clusters/"+m.Name()+"/api/v1/namespaces", http.NoBody))
	}
	return page, f
}

// used returns the processor time of this process.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	expect.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// scrape returns the compressed text, as Prometheus requests it, and the processor time.
func scrape(t *testing.T, page http.Handler) ([]byte, time.Duration) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", "text/plain;version=0.0.4")
	r.Header.Set("Accept-Encoding", "gzip")
	before := used(t)
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	cost := used(t) - before
	expect.Equal(t, w.Code, http.StatusOK)
	return w.Body.Bytes(), cost
}

// TestScrape measures a scrape of a large fleet: make bench NAME=scrape runs it with 1,000
// clusters, or as many as WATERSHED_CLUSTERS says. Without that, it checks the number of
// series of a few.
func TestScrape(t *testing.T) {
	clusters := 4
	if os.Getenv("WATERSHED_BENCH") == "scrape" {
		clusters = 1000
		if n, err := strconv.Atoi(os.Getenv("WATERSHED_CLUSTERS")); err == nil {
			clusters = n
		}
	}
	page, f := newPage(t, clusters)
	var costs []time.Duration
	var zipped, text []byte
	for range 7 {
		var cost time.Duration
		zipped, cost = scrape(t, page)
		costs = append(costs, cost)
	}
	reader, err := gzip.NewReader(bytes.NewReader(zipped))
	expect.NoError(t, err)
	text, err = io.ReadAll(reader)
	expect.NoError(t, err)
	series, objects := 0, 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
		if strings.HasPrefix(line, "watershed_objects{") {
			objects++
		}
	}
	slices.Sort(costs)
	fmt.Fprintf(os.Stdout, "scrape of %d clusters with %d resources each: %d series, %d of them for clusters and "+
		"resources, %.1f MB, %.1f MB compressed, processor time %s (median of %d, at most %s)\n",
		clusters, resources, series, objects, float64(len(text))/1e6, float64(len(zipped))/1e6,
		costs[len(costs)/2].Round(time.Millisecond), len(costs), costs[len(costs)-1].Round(time.Millisecond))
	expect.Equal(t, objects, clusters*resources)
	// The process, the runtime and the replica have some hundred series.
	if most := clusters*(resources+38) + 700; series > most {
		t.Errorf("%d series, want %d at most", series, most)
	}
	if clusters == 1000 && series >= 100_000 {
		t.Errorf("%d series", series)
	}
	began := time.Now()
	f.Stats()
	fmt.Fprintf(os.Stdout, "scrape stats of the fleet: %s\n", time.Since(began).Round(time.Microsecond))
}
