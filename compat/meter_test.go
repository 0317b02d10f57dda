// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

// provider records the metrics of informers, by their names and resources.
type provider struct {
	mu     sync.Mutex
	values map[string]float64
	counts map[string]int
}

func newProvider() *provider {
	return &provider{values: map[string]float64{}, counts: map[string]int{}}
}

// recorded is a gauge or a histogram.
type recorded struct {
	p  *provider
	at string
}

func (r recorded) Set(v float64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.values[r.at] = v
}

func (r recorded) Observe(float64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.counts[r.at]++
}

func (p *provider) of(kind string, id cache.InformerNameAndResource) recorded {
	return recorded{p, fmt.Sprintf("%s %s", kind, id.GroupVersionResource())}
}

func (p *provider) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return p.of("queued", id)
}

func (p *provider) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return p.of("latency", id)
}

func (p *provider) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return p.of("version", id)
}

// observed returns the gauges, and whether the histograms have been used.
func (p *provider) observed() (gauges map[string]float64, used map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gauges, used = map[string]float64{}, map[string]bool{}
	for at, v := range p.values {
		gauges[at] = v
	}
	for at, n := range p.counts {
		used[at] = n > 0
	}
	return gauges, used
}

// TestMetrics_areThoseOfClientGo runs an informer of either kind on the same changes, and
// compares their metrics.
func TestMetrics_areThoseOfClientGo(t *testing.T) {
	stock, ours := newProvider(), newProvider()
	for _, side := range []struct {
		name string
		p    *provider
		make func(lw cache.ListerWatcher, name *cache.InformerName, p *provider) cache.SharedIndexInformer
	}{
		{"stock", stock, func(lw cache.ListerWatcher, name *cache.InformerName, p *provider) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformerWithOptions(lw, &corev1.Pod{}, cache.SharedIndexInformerOptions{
				Identifier:              name.WithResource(corev1.SchemeGroupVersion.WithResource("pods")),
				InformerMetricsProvider: p,
			})
		}},
		{"compat", ours, func(lw cache.ListerWatcher, name *cache.InformerName, p *provider) cache.SharedIndexInformer {
			constructor := compat.NewInformer(&compat.Options{
				Name: name, Metrics: p, Logger: slog.New(slog.DiscardHandler),
			})
			first := constructor(lw, &corev1.Pod{}, 0, nil)
			constructor(lw, &corev1.Pod{}, 0, nil) // a second one has no metrics
			return first
		}},
	} {
		source := podSource(t, pod("a", "1"), pod("a", "2"))
		name, err := cache.NewInformerName("test-" + side.name)
		expect.NoError(t, err)
		defer name.Release()
		informer := side.make(source, name, side.p)
		stop := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() { informer.Run(stop) })
		cache.WaitForCacheSync(stop, informer.HasSynced)
		source.Modify(labelled(pod("a", "1"), "x"))
		source.Add(pod("a", "3"))
		source.Delete(pod("a", "2"))
		expect.Soon(t, "changed", func() bool {
			gauges, _ := side.p.observed()
			return len(informer.GetStore().List()) == 2 && gauges["version /v1, Resource=pods"] == 5
		})
		close(stop)
		running.Wait()
	}
	wantGauges, wantUsed := stock.observed()
	gauges, used := ours.observed()
	expect.Equal(t, gauges, wantGauges)
	expect.Equal(t, used, wantUsed)
	expect.Equal(t, gauges, map[string]float64{"queued /v1, Resource=pods": 0, "version /v1, Resource=pods": 5})
}
