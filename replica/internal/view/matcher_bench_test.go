// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	selectable "github.com/watershed-project/watershed/internal/fields"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// BenchmarkWatchers_unrelatedChange measures the cost of a change for each of the
// watchers that it does not concern: those that wait for other values, and one that has
// to look at it, as every watcher without an interest does.
func BenchmarkWatchers_unrelatedChange(b *testing.B) {
	pods := selectable.For(corev1.SchemeGroupVersion.WithKind("Pod"))
	for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
		kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
		pod := (&kubetest.Workload{}).Pod(1)
		pod.APIVersion, pod.Kind, pod.ResourceVersion = "v1", "Pod", "5"
		o, err := wire.Encode(pod, e, kind)
		if err != nil {
			b.Fatal(err)
		}
		c := store.Change[*wire.Object]{Type: delta.Updated, Key: o.Key(), Old: o, New: o}
		for _, watchers := range []int{1, 100, 5000} {
			for name, s := range map[string]selection{
				"field": {fields: "spec.nodeName=other-%d"},
				"label": {labels: "app=other-%d"},
				"name":  {fields: "metadata.name=other-%d"},
			} {
				b.Run(fmt.Sprintf("%s/%s/%d", e, name, watchers), func(b *testing.B) {
					l := fanout.New(objectlog.Options(0))
					ctx, cancel := context.WithCancel(b.Context())
					var waiting sync.WaitGroup
					for i := range watchers {
						one := s
						if s.fields != "" {
							one.fields = fmt.Sprintf(s.fields, i)
						} else {
							one.labels = fmt.Sprintf(s.labels, i)
						}
						cursor, err := l.Cursor(0, newTestMatcher(b, one, pods).interest())
						if err != nil {
							b.Fatal(err)
						}
						waiting.Go(func() { _, _ = cursor.Next(ctx) }) // waits until the benchmark ends
					}
					for l.Stats().Waiting < watchers {
						runtime.Gosched()
					}
					b.ReportAllocs()
					for b.Loop() {
						c.Revision++
						l.Publish([]store.Change[*wire.Object]{c})
					}
					if l.Stats().Waiting != watchers {
						b.Error("the change concerns a watcher")
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(watchers),
						"ns/change/watcher")
					cancel()
					waiting.Wait()
				})
			}
		}
		for name, s := range map[string]selection{
			"field": {fields: "spec.nodeName=other"},
			"label": {labels: "app=other"},
		} {
			b.Run(fmt.Sprintf("%s/%s/looks", e, name), func(b *testing.B) {
				m := newTestMatcher(b, s, pods)
				b.ReportAllocs()
				for b.Loop() {
					m.event(&c)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/change/watcher")
			})
		}
	}
}
