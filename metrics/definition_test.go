// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watershed-project/watershed/metrics"
)

var labelled = metrics.Define(metrics.Counter, "labelled_total", "A metric with a label.", "name")

// garbage is a collector whose label is not UTF-8.
type garbage struct{}

func (garbage) Describe(to chan<- *prometheus.Desc) { to <- labelled.Desc() }

func (garbage) Collect(to chan<- prometheus.Metric) { metrics.Sink(to).Count(labelled, 1, "a\xffb") }

// TestSink_replacesWhatIsNotUTF8 has a label that would make the whole page fail.
func TestSink_replacesWhatIsNotUTF8(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(garbage{})
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if got := all[0].GetMetric()[0].GetLabel()[0].GetValue(); got != "a\uFFFDb" {
		t.Errorf("the label is %q", got)
	}
}
