// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/metrics"
)

// startFleet runs a fleet of simulated clusters, and of one that does not respond.
func startFleet(t *testing.T, opts *simulated.Options) (*fleet.Fleet, *directory.Static, *simulated.Server) {
	t.Helper()
	s, err := simulated.New(opts)
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	entries := []fleet.Entry{{Name: "closed", Config: &rest.Config{Host: "https://127.0.0.1:1"}}}
	for i := range s.Clusters() {
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: s.Cluster(i).Config()})
	}
	d, err := directory.NewStatic(entries...)
	expect.NoError(t, err)
	f, err := fleet.New(d, &fleet.Options{
		History: 1 << 20, Facets: []string{"default"}, Logger: slog.New(slog.DiscardHandler),
	})
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		expect.NoError(t, <-ended)
	})
	expect.NoError(t, f.WaitForSync(t.Context()))
	return f, d, s
}

// TestFleetCollector has a pedantic registry check that every metric is described, and that
// no series occurs twice.
func TestFleetCollector(t *testing.T) {
	const clusters, types = 3, 6
	f, d, s := startFleet(t, &simulated.Options{Clusters: clusters, Pods: 40, Namespaces: 2, Types: types})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewFleetCollector(f))
	first := s.Cluster(0).Name()
	var want strings.Builder
	fmt.Fprint(&want, "# HELP watershed_cluster_state 1 for the state that a cluster is in: connecting, syncing, live "+
		"or stale. There is no series for the other states.\n# TYPE watershed_cluster_state gauge\n")
	fmt.Fprint(&want, "watershed_cluster_state{cluster=\"closed\",state=\"connecting\"} 1\n")
	for i := range clusters {
		fmt.Fprintf(&want, "watershed_cluster_state{cluster=%q,state=\"live\"} 1\n", s.Cluster(i).Name())
	}
	expect.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want.String()), "watershed_cluster_state"))

	value := func(name string, labels ...string) float64 { return gathered(t, registry, name, labels...) }
	expect.Equal(t, value("watershed_objects", "cluster", first, "resource", "pods"), 40)
	expect.Equal(t, value("watershed_objects", "cluster", first, "resource", "namespaces"), 2)
	expect.Equal(t, value("watershed_staleness_seconds", "cluster", first, "cause", ""), 0)
	expect.Equal(t, value("watershed_staleness_seconds", "cluster", "closed", "cause", "Unreachable") > 0, true)
	expect.Equal(t, value("watershed_upstream_requests_total", "cluster", first, "verb", "WATCH") >= types+2, true)
	expect.Equal(t, value("watershed_cluster_memory_bytes", "cluster", first, "part", "objects") > 40*300, true)
	expect.Equal(t, value("watershed_resource_memory_bytes", "resource", "pods", "part", "objects") > clusters*40*300,
		true)
	expect.Equal(t, value("watershed_resource_memory_bytes", "resource", "pods", "part", "facets") > clusters*40*80,
		true)
	expect.Equal(t, value("watershed_resource_unknown_facets", "resource", "pods"), 0)
	expect.Equal(t, value("watershed_shared_memory_bytes", "part", "facets") > 0, true)
	// A touch is an event.
	s.Cluster(0).Touch(7)
	expect.Soon(t, "counted", func() bool {
		return value("watershed_events_total", "cluster", first, "type", "updated") == 1
	})
	expect.Equal(t, value("watershed_event_delay_seconds", "cluster", first), 1)

	for _, name := range []string{"watershed_objects", "watershed_resource_staleness_seconds"} {
		n, err := testutil.GatherAndCount(registry, name)
		expect.NoError(t, err)
		t.Logf("%d series of %s", n, name)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	// The series of a cluster end when it leaves.
	var left []fleet.Entry
	for i := 1; i < clusters; i++ {
		left = append(left, fleet.Entry{Name: s.Cluster(i).Name(), Config: s.Cluster(i).Config()})
	}
	expect.NoError(t, d.Set(left...))
	expect.Eventually(t, 10*time.Second, func() error {
		families, err := registry.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetValue() == first || l.GetValue() == "closed" {
						return fmt.Errorf("%s has a series of a cluster that has left", family.GetName())
					}
				}
			}
		}
		return nil
	})
}

// gathered returns the value of the series with the given labels, or the count of a
// histogram. It fails the test if there is none.
func gathered(t *testing.T, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	expect.NoError(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue series
				}
			}
			switch {
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("%s has no series %q", name, labels)
	return 0
}
