// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package clientgo_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/metrics/clientgo"
)

// TestProvider uses it for a store of client-go, and then releases the name.
func TestProvider(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p, err := clientgo.NewProvider(registry)
	expect.NoError(t, err)
	name, err := cache.NewInformerName("controller")
	expect.NoError(t, err)
	id := name.WithResource(corev1.SchemeGroupVersion.WithResource("pods"))
	store := cache.NewStore(cache.MetaNamespaceKeyFunc, cache.WithStoreMetrics(id, p))
	expect.NoError(t, store.Replace(nil, "1234567890123456789"))
	const want = `# HELP informer_store_resource_version The 15 least significant digits of the resource version of the store.
# TYPE informer_store_resource_version gauge
informer_store_resource_version{group="",name="controller",resource="pods",version="v1"} 5.67890123456789e+14
`
	expect.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "informer_store_resource_version"))
	p.NewProcessingLatencyMetric(id).Observe(0.1)
	name.Release()
	p.NewProcessingLatencyMetric(id).Observe(0.1)
	p.NewStoreResourceVersionMetric(id).Set(1)
	expect.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "informer_store_resource_version"))
	families, err := registry.Gather()
	expect.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "informer_processing_latency_seconds" {
			expect.Equal(t, f.GetMetric()[0].GetHistogram().GetSampleCount(), 1)
		}
	}
	expect.Equal(t, len(families), 2)
	if _, err := clientgo.NewProvider(registry); err == nil {
		t.Error("a second provider in one registry")
	}
}
