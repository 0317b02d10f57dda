// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

// resourcesOf returns the resources of a member that can be read.
func resourcesOf(m *fleet.Member) string {
	var all []string
	for _, r := range m.Served() {
		all = append(all, r.Resource)
	}
	return strings.Join(all, " ")
}

// TestReconfigure_resources selects other resources while the fleet runs. The watch of one that
// stays goes on.
func TestReconfigure_resources(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 50, Types: 1})
	d := newRoster()
	d.set("one", s.Cluster(0).Config())
	f := start(t, d, &fleet.Options{
		Resources: []string{"pods", "namespaces", "empty000s.*"}, History: 1 << 20, Logger: quiet,
	})
	expect.NoError(t, f.WaitForSync(t.Context()))
	m, _ := f.Member("one")
	_, follower := fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "pods"}).Follow()
	next := func() {
		t.Helper()
		s.Cluster(0).Touch(7)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if changes, err := follower.NextUntil(ctx, nil); err != nil || changes == nil {
			t.Fatalf("the watch of pods ended: %v", err)
		}
	}
	next()
	before, _ := m.Feed(schema.GroupResource{Resource: "pods"})
	for _, c := range []struct {
		resources, except []string
		want              string
	}{
		{[]string{"pods", "namespaces"}, nil, "namespaces pods"},
		{[]string{"*"}, []string{"namespaces"}, "pods apiservices customresourcedefinitions empty000s"},
		{[]string{"pods"}, nil, "pods"},
		{[]string{"pods", "customresourcedefinitions.*"}, nil, "pods customresourcedefinitions"},
	} {
		expect.NoError(t, f.Reconfigure(fleet.Tuning{Resources: c.resources, Except: c.except, History: 1 << 20}))
		for _, r := range m.Served() {
			if !slices.Contains(strings.Fields(c.want), r.Resource) {
				t.Errorf("%q: %s can still be read after Reconfigure has returned", c.resources, r.Resource)
			}
		}
		expect.Soon(t, "the resources are "+c.want, func() bool { return resourcesOf(m) == c.want })
		expect.NoError(t, m.WaitForSync(t.Context()))
		next()
	}
	if after, _ := m.Feed(schema.GroupResource{Resource: "pods"}); after != before {
		t.Error("the pods were mirrored anew")
	}
	// An error changes nothing.
	for _, bad := range []fleet.Tuning{
		{Resources: []string{"a/b"}, History: 1},
		{Resources: []string{}, History: 1},
		{},
	} {
		if err := f.Reconfigure(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	next()
	expect.Equal(t, resourcesOf(m), "pods customresourcedefinitions")
}

// TestReconfigure_unreachable stops to mirror a resource of a cluster that does not answer: it
// cannot be read any more at once.
func TestReconfigure_unreachable(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 50})
	d := newRoster()
	d.set("one", s.Cluster(0).Config())
	f := start(t, d, &fleet.Options{Resources: []string{"pods", "namespaces"}, History: 1 << 20, Logger: quiet})
	expect.NoError(t, f.WaitForSync(t.Context()))
	s.Close()
	expect.NoError(t, f.Reconfigure(fleet.Tuning{Resources: []string{"namespaces"}, History: 1 << 20}))
	m, _ := f.Member("one")
	if _, ok := m.Feed(schema.GroupResource{Resource: "pods"}); ok ||
		fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "pods"}).Len() > 0 {
		t.Error("the pods can be read")
	}
	if _, ok := m.Feed(schema.GroupResource{Resource: "namespaces"}); !ok {
		t.Error("the namespaces cannot be read")
	}
}

// TestReconfigure_limits raises and lowers the limit of a running fleet.
func TestReconfigure_limits(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 50})
	d := newRoster()
	d.set("one", s.Cluster(0).Config())
	f := start(t, d, &fleet.Options{
		Resources: []string{"pods"},
		History:   1 << 20,
		Limits:    fleet.Limits{Objects: 20},
		Logger:    quiet,
	})
	m := func() *fleet.Member { m, _ := f.Member("one"); return m }
	limit := func(objects int) {
		t.Helper()
		expect.NoError(t, f.Reconfigure(fleet.Tuning{
			Resources: []string{"pods"},
			History:   1 << 20,
			Limits:    fleet.Limits{Objects: objects},
		}))
	}
	stale := func() bool { return m() != nil && len(m().Status().Failing) == 1 }
	expect.Soon(t, "the limit is exceeded", stale)
	limit(1000)
	expect.Soon(t, "all pods are read, long before the retry of the old limit", func() bool {
		s := m().Status()
		return s.State == fleet.Live && s.Objects >= 50
	})
	limit(30)
	s.Cluster(0).Touch(1)
	expect.Soon(t, "the lower limit is exceeded", stale)
	if n := fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "pods"}).Len(); n != 50 {
		t.Errorf("%d pods can be read", n)
	}
}

// TestShed drops the expendable resources when memory is scarce, and only those. They do not
// come back with the memory, but with another configuration.
func TestShed(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 50, Types: 1})
	d := newRoster()
	d.set("one", s.Cluster(0).Config())
	opts := fleet.Tuning{
		Resources:  []string{"pods", "namespaces", "empty000s.*"},
		Expendable: []string{"empty000s.*", "namespaces"},
		History:    1 << 20,
	}
	if _, err := fleet.New(d, &fleet.Options{Expendable: []string{"a/b"}}); err == nil {
		t.Error("a bad pattern is accepted")
	}
	f := start(t, d, &fleet.Options{
		Resources: opts.Resources, Expendable: opts.Expendable, History: opts.History, Logger: quiet,
	})
	expect.NoError(t, f.WaitForSync(t.Context()))
	m, _ := f.Member("one")
	f.SetMemory(fleet.Memory{Pressure: fleet.PressureHistory, Room: 1 << 20})
	expect.Equal(t, resourcesOf(m), "namespaces pods empty000s")
	f.SetMemory(fleet.Memory{Pressure: fleet.PressureFull})
	expect.Equal(t, resourcesOf(m), "pods")
	f.SetMemory(fleet.Memory{Room: 1 << 30})
	expect.NoError(t, m.WaitForSync(t.Context()))
	expect.Equal(t, resourcesOf(m), "pods")
	expect.NoError(t, f.Reconfigure(opts))
	expect.Soon(t, "all are mirrored again", func() bool { return resourcesOf(m) == "namespaces pods empty000s" })
	expect.NoError(t, m.WaitForSync(t.Context()))
}

// TestShed_forAList drops the expendable resources when there is no room for another one.
func TestShed_forAList(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 50})
	d := newRoster()
	d.set("one", s.Cluster(0).Config())
	f := start(t, d, &fleet.Options{
		Resources:  []string{"pods", "namespaces"},
		Expendable: []string{"pods"},
		History:    1 << 20,
		Logger:     quiet,
	})
	expect.NoError(t, f.WaitForSync(t.Context()))
	f.SetMemory(fleet.Memory{Room: -1})
	d.set("two", s.Cluster(1).Config())
	m, _ := f.Member("one")
	expect.Soon(t, "the pods are dropped", func() bool {
		f.SetMemory(fleet.Memory{Room: -1})
		return resourcesOf(m) == "namespaces"
	})
}
