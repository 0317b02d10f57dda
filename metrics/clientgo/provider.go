// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package clientgo makes client-go's own metrics of informers, for package compat and for
// client-go. It is separate from package metrics, because it links client-go's cache.
//
// # Guarantees
//
// The metrics have the names, labels and buckets that they have in Kubernetes' own
// components. An informer changes its metrics as long as its name is reserved.
//
// # What blocks
//
// Nothing blocks.
//
// # Bounds and ownership
//
// Each informer with a name has 16 series, which stay until the process ends.
package clientgo

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
)

// Provider makes client-go's metrics of informers, with the names and labels that
// they have in Kubernetes' own components: informer_queued_items,
// informer_processing_latency_seconds and informer_store_resource_version. It is for
// compat.Options and for [cache.SetInformerMetricsProvider]. The provider of Kubernetes'
// component-base is not exported, and cannot be used by other informers than client-go's.
type Provider struct {
	queued, version *prometheus.GaugeVec
	latency         *prometheus.HistogramVec
}

var _ cache.InformerMetricsProvider = (*Provider)(nil)

// informerLabels are the labels of client-go's metrics.
var informerLabels = []string{"name", "group", "version", "resource"}

// latencyBuckets are those of component-base.
var latencyBuckets = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// NewProvider registers the metrics and returns their provider.
func NewProvider(registerer prometheus.Registerer) (*Provider, error) {
	p := &Provider{
		queued: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "informer_queued_items", Help: "Number of items currently queued in the FIFO.",
		}, informerLabels),
		version: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "informer_store_resource_version",
			Help: "The 15 least significant digits of the resource version of the store.",
		}, informerLabels),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "informer_processing_latency_seconds",
			Help:    "Time taken to process events after popping from the queue.",
			Buckets: latencyBuckets,
		}, informerLabels),
	}
	for _, c := range []prometheus.Collector{p.queued, p.version, p.latency} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("metrics of informers: %w", err)
		}
	}
	return p, nil
}

// labelsOf returns the labels of an informer.
func labelsOf(id cache.InformerNameAndResource) []string {
	r := id.GroupVersionResource()
	return []string{id.Name(), r.Group, r.Version, r.Resource}
}

// NewQueuedItemMetric implements [cache.InformerMetricsProvider].
func (p *Provider) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return reserved{id, p.queued.WithLabelValues(labelsOf(id)...).Set}
}

// NewProcessingLatencyMetric implements [cache.InformerMetricsProvider].
func (p *Provider) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return reserved{id, p.latency.WithLabelValues(labelsOf(id)...).Observe}
}

// NewStoreResourceVersionMetric implements [cache.InformerMetricsProvider].
func (p *Provider) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return reserved{id, p.version.WithLabelValues(labelsOf(id)...).Set}
}

// reserved records values as long as its informer has its name. It is a gauge or a histogram.
type reserved struct {
	id     cache.InformerNameAndResource
	record func(value float64)
}

// Set implements [cache.GaugeMetric].
func (m reserved) Set(value float64) { m.Observe(value) }

// Observe implements [cache.HistogramMetric].
func (m reserved) Observe(value float64) {
	if m.id.Reserved() {
		m.record(value)
	}
}
