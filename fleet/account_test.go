// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"log/slog"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// BenchmarkCharge measures what an arriving object costs below the limits, from one source
// and from several at once.
func BenchmarkCharge(b *testing.B) {
	u := newAccount("eu", Limits{}.withDefaults(), &pressure{}).open()
	u.account.bounds.Store(&bounds{limit: amount{1 << 60, 1 << 60}})
	t := &testing.T{}
	o := onNode(t, "a", "", 1)
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if err := u.charge(o, false); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if err := u.charge(o, false); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkMeasure measures what a measurement costs for each object that is kept. The
// objects are packed.
func BenchmarkMeasure(b *testing.B) {
	const objects = 50_000
	i := watershed.FromSource(empty{}, &watershed.Options[*wire.Object]{Memory: watershed.Packed, Window: 1, Logger: slog.New(slog.DiscardHandler)})
	go func() { _ = i.Run(b.Context()) }() // returns when the context ends
	if err := i.WaitForSync(b.Context()); err != nil {
		b.Fatal(err)
	}
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	w := kubetest.Workload{Seed: 1}
	for n := range objects {
		pod := w.Pod(n)
		pod.ResourceVersion = strconv.Itoa(n + 1)
		o, err := wire.Encode(pod, wire.Protobuf, kind)
		if err != nil {
			b.Fatal(err)
		}
		i.Write(delta.Delta[*wire.Object]{Type: delta.Updated, Key: o.Key(), Object: o, Version: uint64(n + 1)})
	}
	a := newAccount("eu", Limits{}.withDefaults(), &pressure{})
	a.open().of = i
	for b.Loop() {
		a.mu.Lock()
		a.measureLocked()
		a.mu.Unlock()
	}
	if a.measured.objects != objects {
		b.Fatalf("%d objects are measured", a.measured.objects)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
}
