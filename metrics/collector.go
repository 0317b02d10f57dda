// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watershed-project/watershed"
)

var (
	objects = prometheus.NewDesc("watershed_objects", "Objects that are kept.", []string{"cluster", "resource"}, nil)
	packed  = prometheus.NewDesc("watershed_objects_packed", "Objects that are kept packed.", []string{"cluster", "resource"}, nil)
	bytes   = prometheus.NewDesc("watershed_memory_bytes", "Memory in use, by purpose.", []string{"cluster", "resource", "part"}, nil)
)

// Collector exports the memory use of a report's informers to Prometheus.
type Collector struct{ report *watershed.Report }

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a collector, to be registered with the program's other collectors.
func NewCollector(report *watershed.Report) *Collector { return &Collector{report} }

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	to <- objects
	to <- packed
	to <- bytes
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range added(c.report.Stats()) {
		gauge := func(desc *prometheus.Desc, value float64, part ...string) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{s.Cluster, s.Resource}, part...)...)
		}
		gauge(objects, float64(s.Objects))
		gauge(packed, float64(s.Packed))
		gauge(bytes, float64(s.ObjectBytes), "objects")
		gauge(bytes, float64(s.KeyBytes), "keys")
		gauge(bytes, float64(s.IndexBytes), "indexes")
		gauge(bytes, float64(s.LogBytes), "log")
		gauge(bytes, float64(s.DictionaryBytes), "dictionaries")
		gauge(bytes, float64(s.DecodedBytes), "decoded")
	}
}

// added adds up the stats that have the same labels, as Prometheus requires each series
// once. all must be sorted.
func added(all []watershed.Stats) []watershed.Stats {
	var sums []watershed.Stats
	for _, s := range all {
		if n := len(sums) - 1; n >= 0 && sums[n].Cluster == s.Cluster && sums[n].Resource == s.Resource {
			sum := &sums[n]
			sum.Objects += s.Objects
			sum.Packed += s.Packed
			sum.ObjectBytes += s.ObjectBytes
			sum.KeyBytes += s.KeyBytes
			sum.IndexBytes += s.IndexBytes
			sum.LogBytes += s.LogBytes
			sum.DictionaryBytes += s.DictionaryBytes
			sum.DecodedBytes += s.DecodedBytes
			continue
		}
		sums = append(sums, s)
	}
	return sums
}
