// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestProblems gives a running server a home cluster that does not exist, a configuration file
// with an error, and a source that cannot be read. Status and metrics have each of them until it
// is corrected.
func TestProblems(t *testing.T) {
	w := newKeyClusters(t)
	c := configure(t, w.one("fleet.home", "nowhere"))
	good, err := os.ReadFile(w.kubeconfig)
	expect.NoError(t, err)
	want := func(reasons ...string) {
		t.Helper()
		expect.Eventually(t, 20*time.Second, func() error {
			status, err := command(t.Context(), "status", "--state-dir", c.state.Path)
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
