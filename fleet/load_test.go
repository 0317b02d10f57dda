// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/wire"
)

// requests returns the API server's counters: the LIST, GET and WATCH requests so far by
// verb, and the open watches by resource.
func requests(t *testing.T, c *kubetest.Cluster) (begun map[string]int, open map[string]int) {
	t.Helper()
	text, err := c.Kubectl(t.Context(), "get", "--raw", "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	begun, open = map[string]int{}, map[string]int{}
	line := regexp.MustCompile(`^(apiserver_request_total|apiserver_longrunning_requests)\{(.*)\} ([0-9.e+]+)$`)
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	for _, text := range strings.Split(text, "\n") {
		m := line.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			of[l[1]] = l[2]
		}
		resource := schema.GroupResource{Group: of["group"], Resource: of["resource"]}.String()
		switch {
		case m[1] == "apiserver_longrunning_requests" && of["verb"] == "WATCH":
			open[resource] += int(value)
		case m[1] == "apiserver_request_total" && of["resource"] == "pods":
			begun[of["verb"]] += int(value)
		}
	}
	return begun, open
}

// TestReaders_doNotReachTheServer has 200 readers list, get and watch, and reads the API
// server's counters.
func TestReaders_doNotReachTheServer(t *testing.T) {
	c := kubetest.Start(t, nil)
	_, alone := requests(t, c)
	if err := c.LoadPods(t.Context(), kubetest.Workload{Seed: 1, Namespaces: 10}, 500); err != nil {
		t.Fatal(err)
	}
	// Loading interrupts the server's own watch of pods, which comes back some seconds later.
	expect.Eventually(t, time.Minute, func() error {
		if _, open := requests(t, c); open["pods"] != alone["pods"] {
			return fmt.Errorf("%d watches of pods, %d before they were loaded", open["pods"], alone["pods"])
		}
		return nil
	})
	r := newRoster()
	r.set("one", c.Config())
	f := start(t, r, nil)
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods, err := fleet.Of[*corev1.Pod](f)
	if err != nil {
		t.Fatal(err)
	}
	before, open := requests(t, c)
	m, _ := f.Member("one")
	for _, s := range m.Resources() {
		// The server itself watches some resources.
		name := s.Resource.GroupResource().String()
		if n := open[name] - alone[name]; n != 1 {
			t.Errorf("%d watches of %s, not one", n, name)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var lists, gets, events atomic.Int64
	selector := labels.SelectorFromSet(labels.Set{"team": "team-003"})
	for n := range 200 {
		wg.Go(func() {
			for c := range pods.Watch(ctx) {
				_ = c.Key
				events.Add(1)
			}
		})
		wg.Go(func() {
			for i := n; ctx.Err() == nil; i++ {
				for key := range pods.Snapshot().Select("", selector) {
					if _, ok := pods.Get(key); ok {
						gets.Add(1)
					}
				}
				lists.Add(1)
				runtime.Gosched()
			}
		})
	}
	// A watch that begins later has the changes in its first state.
	expect.Eventually(t, time.Minute, func() error {
		if n := events.Load(); n < 200*500 {
			return fmt.Errorf("%d of %d objects", n, 200*500)
		}
		return nil
	})
	w := kubetest.Workload{Seed: 1, Namespaces: 10}
	for i := range 20 {
		p := w.Pod(i)
		p.Labels["touched"] = "yes"
		if err := c.PutPods(t.Context(), p); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond) // each change is an event of its own
	}
	expect.Eventually(t, 20*time.Second, func() error {
		if n := events.Load(); n < 200*520 {
			return fmt.Errorf("%d of %d events", n, 200*520)
		}
		return unlike(t.Context(), f, "one", c, schema.GroupResource{Resource: "pods"})
	})
	after, open := requests(t, c)
	cancel()
	wg.Wait()
	t.Logf("200 readers: %d lists, %d gets, %d events; the server counts LIST %d -> %d, GET %d -> %d, WATCH %d -> "+
		"%d, open watches of pods %d",
		lists.Load(), gets.Load(), events.Load(), before["LIST"], after["LIST"], before["GET"], after["GET"],
		before["WATCH"], after["WATCH"], open["pods"]-alone["pods"])
	for _, verb := range []string{"LIST", "GET", "WATCH"} {
		if after[verb] != before[verb] {
			t.Errorf("%s requests for pods went from %d to %d", verb, before[verb], after[verb])
		}
	}
	if n := open["pods"] - alone["pods"]; n != 1 {
		t.Errorf("%d watches of pods", n)
	}
	if lists.Load() < 1000 || gets.Load() < 1000 {
		t.Error("the readers hardly read")
	}
}

// TestLeave_freesMemory measures the heap with one cluster, with a large one added, and
// with that one removed.
func TestLeave_freesMemory(t *testing.T) {
	small, large := kubetest.Start(t, nil), kubetest.Start(t, nil)
	for _, x := range []struct {
		cluster *kubetest.Cluster
		pods    int
	}{{small, 8000}, {large, 10_000}} {
		if err := x.cluster.LoadPods(t.Context(), kubetest.Workload{Seed: 1}, x.pods); err != nil {
			t.Fatal(err)
		}
	}
	r := newRoster()
	r.set("small", small.Config())
	// The cache of decoded values is not part of this test.
	f := start(t, r, &fleet.Options{Decoded: 1})
	v := fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "pods"})
	// This reader keeps no objects.
	var known atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for c := range v.Watch(ctx) {
			switch c.Type {
			case delta.Added:
				known.Add(1)
			case delta.Deleted:
				known.Add(-1)
			}
		}
	})
	reached := func(n int) {
		t.Helper()
		expect.Eventually(t, time.Minute, func() error {
			if got, read := v.Len(), known.Load(); got != n || int(read) != n {
				return fmt.Errorf("%d pods of %d, of which the reader knows %d", got, n, read)
			}
			return nil
		})
		if err := f.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reached(8000)
	before := restingHeap()
	r.set("large", large.Config())
	reached(18_000)
	with := restingHeap()
	r.set("large", nil)
	reached(8000)
	after := restingHeap()
	t.Logf("live heap: %.1f MB, with the large cluster %.1f, without it again %.1f", float64(before)/1e6,
		float64(with)/1e6, float64(after)/1e6)
	if with < before+5_000_000 {
		t.Errorf("the large cluster takes %d bytes: is it there?", with-before)
	}
	if after > before+before/20 {
		t.Errorf("%d bytes are left of a cluster that has left", after-before)
	}
}

// restingHeap returns the size of the heap after it has ceased to shrink.
func restingHeap() uint64 {
	least := ^uint64(0)
	for range 20 {
		runtime.GC()
		time.Sleep(100 * time.Millisecond) // finalizers run, and goroutines end
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, m.HeapAlloc)
	}
	return least
}
