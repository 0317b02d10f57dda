// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets_test

import (
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

var podKind = wiretest.KindOf(corev1.SchemeGroupVersion.WithKind("Pod"))

// workload returns pods of a busy cluster.
func workload(tb testing.TB, e wire.Encoding, n int) []*wire.Object {
	tb.Helper()
	all := make([]*wire.Object, n)
	for i := range all {
		raw := wiretest.Bare(tb, e, wiretest.Encode(tb, e, corev1.SchemeGroupVersion, kubetest.Workload{}.Pod(i)))
		o, err := wire.NewObject(raw, e, podKind)
		wiretest.Must(tb, err)
		all[i] = o
	}
	return all
}

func plan(tb testing.TB) *facets.Plan {
	tb.Helper()
	c, err := facets.NewCatalog([]string{facets.Defaults})
	wiretest.Must(tb, err)
	return c.Plan(schema.GroupResource{Resource: "pods"}, podKind.GroupVersionKind, nil)
}

func BenchmarkAttach(b *testing.B) {
	for _, e := range wiretest.Encodings {
		b.Run(e.String(), func(b *testing.B) {
			all, p := workload(b, e, 1000), plan(b)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p.Attach(all[i%len(all)], nil)
			}
		})
	}
}

// BenchmarkCondition evaluates conditions on all pods of a store: per object.
func BenchmarkCondition(b *testing.B) {
	const pods = 100_000
	all, p := workload(b, wire.Protobuf, pods), plan(b)
	s := store.New((*wire.Object).Key, &store.Options[*wire.Object]{Attribute: facets.Attribute})
	for _, o := range all {
		p.Attach(o, nil)
	}
	_, err := s.Replace(all, 1)
	wiretest.Must(b, err)
	for _, bench := range []struct {
		name string
		path string
	}{
		{"shared", "spec.containers[*].image"}, {"placed", "spec.nodeName"},
		{"own", "status.containerStatuses[*].restartCount"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				c := facets.NewCondition([]string{bench.path}, func([]any) facets.Answer { return facets.No })
				for _, o := range s.Snapshot().Unordered() {
					if c.Of(o) != facets.No {
						b.Fatal("a value is unknown")
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/pods, "ns/object")
		})
	}
	b.Run("lookup", func(b *testing.B) {
		for b.Loop() {
			for range facets.Lookup(s.Snapshot(), "status.podIP", "10.1.2.3") {
				break
			}
		}
	})
}

// mostBytes is the goal: the most bytes of the facets of a pod.
const mostBytes = 150

// TestRecord_bytesPerPod compares the heap with and without records, and with what Size says.
func TestRecord_bytesPerPod(t *testing.T) {
	const pods = 30_000
	all, p := workload(t, wire.Protobuf, pods), plan(t)
	before := wiretest.Heap()
	sizes := 0
	for _, o := range all {
		p.Attach(o, nil)
		sizes += facets.Of(o).Size()
	}
	grown := float64(wiretest.Heap()-before) / pods
	counted := float64(int64(sizes)+p.Interned().Bytes) / pods
	// The interner's own maps are bounded: at ten million pods they are less than two bytes of each.
	p.Forget()
	kept := float64(wiretest.Heap()-before) / pods
	t.Logf("%.0f bytes per pod, %.0f with the interner, %.0f counted, of which %d are the record",
		kept, grown, counted, sizes/pods)
	if kept > mostBytes {
		t.Errorf("%.0f bytes per pod, want at most %d", kept, mostBytes)
	}
	if counted < grown*0.8 || counted > grown*1.25 {
		t.Errorf("counted %.0f bytes per pod, measured %.0f", counted, grown)
	}
	runtime.KeepAlive(all)
	runtime.KeepAlive(p)
}
