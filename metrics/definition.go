// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package metrics

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watershed-project/watershed/internal/histogram"
)

// Kind is the type of a metric.
type Kind string

// The kinds of metrics.
const (
	Gauge     Kind = "gauge"
	Counter   Kind = "counter"
	Histogram Kind = "histogram"
)

// Definition describes one metric. The tables in the documentation are made from it.
type Definition struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []string

	desc *prometheus.Desc
}

// Define returns a definition.
func Define(kind Kind, name, help string, labels ...string) *Definition {
	return &Definition{
		Name: name, Kind: kind, Help: help, Labels: labels, desc: prometheus.NewDesc(name, help, labels, nil),
	}
}

// Desc returns the description for a collector.
func (d *Definition) Desc() *prometheus.Desc { return d.desc }

// Sink receives the metrics of a scrape.
type Sink chan<- prometheus.Metric

// Describe sends the descriptions of metrics, for [prometheus.Collector].
func Describe(to chan<- *prometheus.Desc, all []*Definition) {
	for _, d := range all {
		to <- d.desc
	}
}

// Put sends the value of a gauge or a counter. It panics if the number of labels is wrong.
func (s Sink) Put(d *Definition, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if d.Kind == Counter {
		kind = prometheus.CounterValue
	}
	s <- prometheus.MustNewConstMetric(d.desc, kind, value, valid(labels)...)
}

// Count sends the value of a counter.
func (s Sink) Count(d *Definition, value uint64, labels ...string) {
	s.Put(d, float64(value), labels...)
}

// Distribution sends a histogram.
func (s Sink) Distribution(d *Definition, h histogram.Snapshot, labels ...string) {
	buckets := make(map[float64]uint64, len(h.Bounds))
	for i, bound := range h.Bounds {
		buckets[bound.Seconds()] = h.Buckets[i]
	}
	s <- prometheus.MustNewConstHistogram(d.desc, h.Count, h.Sum.Seconds(), buckets, valid(labels)...)
}

// valid returns labels without bytes that are not UTF-8: one such label would make the whole
// page fail.
func valid(labels []string) []string {
	for i, label := range labels {
		if !utf8.ValidString(label) {
			labels[i] = strings.ToValidUTF8(label, "\uFFFD")
		}
	}
	return labels
}

// Age returns the seconds since a time, 0 if it is zero.
func Age(now, since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since).Seconds())
}
