// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

// TestProblems_group checks which states of a process in its group are problems.
func TestProblems_group(t *testing.T) {
	good := group.Status{Membership: replica.Membership{
		Group: "pair", Owned: true, Renewed: true, Ahead: 15, Bound: 3600,
	}}
	lost, ahead, forged := good, good, good
	lost.Renewed, lost.Age = false, 12
	ahead.Ahead = 31 * 60
	forged.Ignored = []error{errors.New("lease pair-1: its bound is not a time"), errors.New("another")}
	for _, c := range []struct {
		status          group.Status
		reason, message string
	}{
		{good, "", ""},
		{lost, remedy.LeaseNotRenewed, "12 s ago"},
		{ahead, remedy.VersionsAhead, "31 minutes ahead"},
		{forged, remedy.LeaseIgnored, "pair-1: its bound is not a time; and 1 more"},
	} {
		all := groupProblems(&c.status)
		switch {
		case c.reason == "" && len(all) == 0:
		case len(all) != 1 || all[0].Reason != c.reason || !strings.Contains(all[0].Message, c.message):
			t.Errorf("the problems are %+v, want %s", all, c.reason)
		}
	}
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
		if has := len(p.all()) > 0; has != missing || strings.Count(text, "is not in the fleet") != warnings ||
			strings.Count(text, "is in the fleet") != infos {
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
