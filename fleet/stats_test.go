// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// TestStats_countWhatTheClustersCount compares the requests, bytes and events with those
// that the clusters have served.
func TestStats_countWhatTheClustersCount(t *testing.T) {
	const clusters, pods, changes = 3, 200, 150
	s := simulate(t, &simulated.Options{Clusters: clusters, Pods: pods, Types: 4})
	r := newRoster()
	for i := range clusters {
		r.set(s.Cluster(i).Name(), s.Cluster(i).Config())
	}
	f := start(t, r, &fleet.Options{Logger: quiet, History: 1 << 20})
	expect.NoError(t, f.WaitForSync(t.Context()))
	c := s.Cluster(1)
	member := func() fleet.MemberStats { return f.Stats().Members[1] }
	// A list is a watch that is closed when the list is complete. Until the cluster has noticed
	// that, it sends changes that nobody reads.
	expect.Eventually(t, 20*time.Second, func() error {
		n, resources := c.Stats(), int64(len(member().Resources))
		if n.Watches != 2*resources || n.OpenWatches != resources {
			return fmt.Errorf("%d watches, %d of them open, of %d resources", n.Watches, n.OpenWatches, resources)
		}
		return nil
	})
	for i := range changes {
		c.Touch(i % pods)
	}
	expect.Eventually(t, 20*time.Second, func() error {
		// An event is counted when it arrives, and its batch when it is stored.
		if n := member().Counts; n.Updated != changes || n.Delay.Count == 0 {
			return fmt.Errorf("%d updates of %d, in %d batches", n.Updated, changes, n.Delay.Count)
		}
		return nil
	})
	expect.Eventually(t, 20*time.Second, func() error {
		got, want := member().Traffic, c.Stats()
		// A watch that is being opened is counted here first.
		if got.List.Requests != uint64(want.Lists) || got.Watch.Requests != uint64(want.Watches) ||
			got.Get.Requests != uint64(want.Gets+want.Discoveries) {
			return fmt.Errorf("requests %+v, the cluster has %+v", got, want)
		}
		// The request for the version of the server, with a response of some hundred bytes, is
		// not counted. A response that is late is not read to its end, such as the page of one
		// pod of a request for their number.
		if bytes := int64(got.List.Bytes + got.Watch.Bytes + got.Get.Bytes); bytes > want.Sent ||
			bytes < want.Sent-16<<10 {
			return fmt.Errorf("%d bytes, the cluster has sent %d; requests %+v, at the cluster %+v, counts %+v", bytes,
				want.Sent, got, want, member().Counts)
		}
		return nil
	})
	m := member()
	expect.Equal(t, m.State, fleet.Live)
	expect.Equal(t, m.Counts.Lists[reflector.Begun], uint64(len(m.Resources)))
	if n := m.Counts.Delay.Count; n > changes {
		t.Errorf("%d batches of %d changes", n, changes)
	}
	expect.Equal(t, m.Traffic.Failed, 0)
	for _, r := range m.Resources {
		if r.Resource != podResource {
			continue
		}
		var bytes int64
		for _, o := range fleet.OfResource[*wire.Object](f, podResource).In(c.Name()).All() {
			bytes += int64(o.Size())
		}
		expect.Equal(t, r.Objects, pods)
		expect.Equal(t, r.Memory.ObjectBytes, bytes)
		expect.Equal(t, r.HistoryBytes > 0, true)
	}

	// The cluster forgets its changes, and the resources are listed again.
	c.Compact()
	c.Cut()
	expect.Eventually(t, 20*time.Second, func() error {
		if n := member().Counts.Lists[reflector.VersionExpired]; n == 0 {
			return fmt.Errorf("no list after the versions expired: %+v", member().Counts)
		}
		return nil
	})
	// A cluster that leaves has no stats, and one that joins begins at zero.
	r.set(c.Name(), nil)
	expect.Soon(t, "left", func() bool { return len(f.Stats().Members) == clusters-1 })
	r.set(c.Name(), c.Config())
	expect.Soon(t, "joined", func() bool { return len(f.Stats().Members) == clusters && member().State == fleet.Live })
	expect.Equal(t, member().Counts.Updated, 0)
}

// TestStats_causesOfRealErrors has clusters that cannot be reached, each in its own way.
func TestStats_causesOfRealErrors(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 4, Pods: 5})
	r := newRoster()
	refusing, distrusted, unresolved := s.Cluster(0).Config(), s.Cluster(1).Config(), s.Cluster(2).Config()
	refusing.BearerToken = "wrong"
	distrusted.CAData = nil
	unresolved.Host = "https://no-such-host.invalid"
	r.set("refusing", refusing)
	r.set("distrusted", distrusted)
	r.set("unresolved", unresolved)
	r.set("closed", &rest.Config{Host: "https://127.0.0.1:1"})
	r.set("good", s.Cluster(3).Config())
	f := start(t, r, &fleet.Options{Logger: quiet})
	want := map[string]fleet.Trouble{
		"refusing": fleet.Unauthorized, "distrusted": fleet.UnknownAuthority, "unresolved": fleet.Unreachable,
		"closed": fleet.Unreachable, "good": "",
	}
	expect.Eventually(t, 20*time.Second, func() error {
		for _, m := range f.Stats().Members {
			if m.Cause != want[m.Name] || m.StaleSince.IsZero() != (m.Name == "good" && m.State == fleet.Live) {
				return fmt.Errorf("%s is %s because of %q since %s: want %q", m.Name, m.State, m.Cause, m.StaleSince,
					want[m.Name])
			}
		}
		return nil
	})
}
