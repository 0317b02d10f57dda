// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// TestProblems gives a running server a home cluster that does not exist, a configuration file
// with an error, and a source that cannot be read. Status and metrics have each of them until it
// is corrected.
func TestProblems(t *testing.T) {
	w := newKeyWorld(t)
	c := configure(t, w.one("fleet.home", "nowhere"))
	good, err := os.ReadFile(w.kubeconfig)
	expect.NoError(t, err)
	want := func(reasons ...string) {
		t.Helper()
		expect.Eventually(t, 20*time.Second, func() error {
			status, err := command(t.Context(), "status", "--state-dir", c.state.dir)
			if err != nil {
				return err
			}
			_, metrics := c.get("/metrics", c.owner())
			for _, reason := range []string{"ConfigurationRejected", "SourceUnreadable", "HomeMissing"} {
				has := slices.Contains(reasons, reason)
				if strings.Contains(status, "server: "+reason) != has {
					return fmt.Errorf("%s: status is\n%s", reason, status)
				}
				if strings.Contains(metrics, fmt.Sprintf("watershed_server_problems{reason=%q} 1\n", reason)) != has {
					return fmt.Errorf("%s: the metrics are\n%s", reason, metrics)
				}
			}
			return nil
		})
	}
	want("HomeMissing")
	expect.NoError(t, os.WriteFile(c.path, []byte(fileOf(t, c.values)+"\nextra: 1"), 0o600))
	want("HomeMissing", "ConfigurationRejected")
	expect.NoError(t, os.WriteFile(w.kubeconfig, []byte("clusters: ["), 0o600))
	want("HomeMissing", "ConfigurationRejected", "SourceUnreadable")
	expect.NoError(t, os.WriteFile(w.kubeconfig, good, 0o600))
	want("HomeMissing", "ConfigurationRejected")
	c.change(nil)
	want("HomeMissing")
	expect.Equal(t, c.names(), "eu")
	expect.Soon(t, "the log says that the home cluster is missing", func() bool {
		return strings.Contains(c.log.String(), "the home cluster is not in the fleet")
	})
}

// TestProblems_home checks that a home cluster that is not in the fleet is a problem, and that the
// log says once when it has begun and when it has ended.
func TestProblems_home(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 1, Namespaces: 1})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	entry := fleet.Entry{Name: s.Cluster(0).Name(), Config: s.Cluster(0).Config()}
	clusters, err := directory.NewStatic(entry)
	expect.NoError(t, err)
	f, err := fleet.New(clusters, &fleet.Options{Resources: []string{"pods"}, Logger: slog.New(slog.DiscardHandler)})
	expect.NoError(t, err)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	var log strings.Builder
	p := &problems{fleet: f, home: "nowhere", logger: slog.New(slog.NewTextHandler(&log, nil))}
	check := func(missing bool, warnings, infos int) {
		t.Helper()
		for range 3 {
			p.logHome()
		}
		text := log.String()
		if has := len(p.all()) > 0; has != missing || strings.Count(text, "is not in the fleet") != warnings || strings.Count(text, "is in the fleet") != infos {
			t.Errorf("a problem: %v; the log is:\n%s", has, text)
		}
	}
	check(false, 0, 0) // the clusters are not known yet
	running.Go(func() { _ = f.Run(ctx) })
	expect.NoError(t, f.WaitForSync(t.Context()))
	check(true, 1, 0)
	p.home = entry.Name
	check(false, 1, 1)
}
