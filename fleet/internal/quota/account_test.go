// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package quota

import (
	"context"
	"log/slog"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// BenchmarkCharge measures what an arriving object costs below the limits, from one source
// and from several at once.
func BenchmarkCharge(b *testing.B) {
	u := NewAccount("eu", Limits{Objects: 5_000_000, Bytes: 8 << 30}, &Process{}).Open()
	u.account.SetLimits(Limits{Objects: 1 << 60, Bytes: 1 << 60})
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "a", ResourceVersion: "1", Labels: map[string]string{"node": ""},
	}}
	o, err := wire.Encode(pod, wire.Protobuf, kind)
	if err != nil {
		b.Fatal(err)
	}
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
	i := watershed.FromSource(empty{}, &watershed.SourceOptions[*wire.Object]{
		Memory: watershed.Packed, Window: 1, Logger: slog.New(slog.DiscardHandler),
	})
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
	a := NewAccount("eu", Limits{Objects: 5_000_000, Bytes: 8 << 30}, &Process{})
	a.Open().of = i
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

// empty is a source without objects, whose watches do not end.
type empty struct{}

func (empty) List(context.Context, reflector.ListOptions, func(*wire.Object) error) (reflector.Page, error) {
	return reflector.Page{Version: "1"}, nil
}
func (empty) Served(context.Context) (bool, error) { return true, nil }
func (empty) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return silent{ctx}, nil
}

type silent struct{ ctx context.Context }

func (s silent) Next() (reflector.Event[*wire.Object], error) {
	<-s.ctx.Done()
	return reflector.Event[*wire.Object]{}, s.ctx.Err()
}
func (silent) Close() error { return nil }
