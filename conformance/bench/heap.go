// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/conformance/bench/harness"
)

// heapReading is the result that a process has measured of itself.
type heapReading struct {
	// Synced is the memory right after the sync.
	Synced harness.Footprint
	// Settled is the memory when the heap has stopped shrinking.
	Settled harness.Footprint
}

var heapTrial = harness.Trial[heapReading]{
	Name: "heap",
	Subjects: []harness.Subject[heapReading]{
		{Name: "ours packed", Runs: 3, Measure: measureHeap(harness.ReadPacked, harness.RepackTime)},
		{Name: "ours fast", Runs: 3, Measure: measureHeap(harness.ReadTyped, 0)},
		{Name: "client-go", Runs: 3, Measure: measureHeap(harness.ReadClientGo, 0)},
		{Name: "dynamic", Runs: 1, Measure: measureHeap(harness.ReadDynamic, 0)},
	},
	Order: func(r heapReading) float64 { return float64(r.Settled.Heap) },
}

// benchHeap measures the memory of 30,000 pods from a real API server.
func benchHeap(out io.Writer) error { return heapTrial.RunWithPods(out, 30_000, heapReport) }

// heapReport returns the report.
func heapReport(c *harness.Cluster, median map[string]heapReading) *harness.Report {
	n := float64(c.Pods)
	perPod := func(name string) float64 { return float64(median[name].Settled.Heap) / n }
	ours := perPod("ours packed")
	theirs := perPod("client-go")
	dynamic := perPod("dynamic")
	r := &harness.Report{
		Heading: fmt.Sprintf("%s pods from kube-apiserver, everything kept, "+
			"each reader in a process of its own; %s, of dynamic one.",
			harness.Whole(n), heapTrial.Repetitions()),
		Columns:  []string{"reader"},
		Measures: harness.Informer,
		Figure:   harness.Figure{Title: fmt.Sprintf("Memory of %s pods", harness.Whole(n))},
		Summary: fmt.Sprintf("heap: bytes/object ours=%.0f client-go=%.0f dynamic=%.0f vs-client-go=%.2f "+
			"vs-dynamic=%.2f",
			ours, theirs, dynamic, theirs/ours, dynamic/ours),
	}
	type reading = harness.Footprint
	packed := median["ours packed"]
	harness.AddRows(r, []harness.Row[reading]{
		{
			Bar:     harness.Bar{Name: "Watershed, packed, settled", Colour: harness.ColourOurs},
			Key:     "packed",
			Reading: packed.Settled,
		},
		{
			Bar:     harness.Bar{Name: "Watershed, packed, just synced", Colour: harness.ColourOurs},
			Key:     "packed-synced",
			Reading: packed.Synced,
		},
		{
			Bar:     harness.Bar{Name: "Watershed, fast", Colour: harness.ColourOursPale},
			Key:     "fast",
			Reading: median["ours fast"].Settled,
		},
		{
			Bar:     harness.Bar{Name: "client-go, typed", Colour: harness.ColourClientGo},
			Key:     "client-go",
			Reading: median["client-go"].Settled,
		},
		{
			Bar:     harness.Bar{Name: "client-go, dynamic", Colour: harness.ColourOther},
			Key:     "dynamic",
			Reading: median["dynamic"].Settled,
		},
	},
		harness.Col("bytes per pod", harness.Grouped, func(f reading) float64 { return float64(f.Heap) / n },
			"live heap, bytes per pod").As("bytes", "bytes"),
		harness.Col("heap objects per pod", "%.1f", func(f reading) float64 { return float64(f.Objects) / n },
			"heap objects per pod"),
		harness.Col("live heap, MB", harness.MB, func(f reading) int64 { return f.Heap }).As("heap", "bytes"),
		harness.Col("RSS, MB", harness.MB, func(f reading) uint64 { return f.RSS }, "RSS, MB").As("rss", "bytes"),
		harness.Col("max RSS, MB", harness.MB, func(f reading) uint64 { return f.MaxRSS }).As("max-rss", "bytes"),
	)
	return r
}

// measureHeap returns the measurement of a reader in this process. After the sync it
// waits at least for the given time, and then until the heap has stopped shrinking.
func measureHeap(read harness.Reader, least time.Duration) func(context.Context) (heapReading, error) {
	return harness.OfCluster(func(ctx context.Context, cfg *rest.Config, n int) (heapReading, error) {
		before := harness.MeasureFootprint()
		kept, err := read(ctx, cfg, n)
		if err != nil {
			return heapReading{}, err
		}
		synced := harness.MeasureFootprint()
		settled := harness.Settle(least)
		runtime.KeepAlive(kept)
		return heapReading{Synced: synced.Since(before), Settled: settled.Since(before)}, nil
	})
}
