// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
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
func benchHeap(out io.Writer) error { return heapTrial.RunWithPods(out, 30_000, printHeap) }

// printHeap writes the report, and the line for scripts.
func printHeap(out io.Writer, c *harness.Cluster, median map[string]heapReading) error {
	if err := heapReport(c.Pods, c.Version, median).Write(out); err != nil {
		return err
	}
	perPod := func(name string) float64 { return float64(median[name].Settled.Heap) / float64(c.Pods) }
	ours, theirs, dynamic := perPod("ours packed"), perPod("client-go"), perPod("dynamic")
	fmt.Fprintf(out, "\nheap: bytes/object ours=%.0f client-go=%.0f dynamic=%.0f vs-client-go=%.2f vs-dynamic=%.2f\n",
		ours, theirs, dynamic, theirs/ours, dynamic/ours)
	return nil
}

// heapReport returns the table and the figure.
func heapReport(n int, version string, median map[string]heapReading) *harness.Report {
	pods := harness.Thousands(strconv.Itoa(n))
	r := &harness.Report{
		Name:    "heap",
		Heading: fmt.Sprintf("%s pods from kube-apiserver, everything kept, each reader in a process of its own; %s, of dynamic one.", pods, heapTrial.Repetitions()),
		Columns: []string{"reader", "bytes per pod", "heap objects per pod", "live heap, MB", "RSS, MB", "max RSS, MB"},
		Figure:  harness.Figure{Title: fmt.Sprintf("Memory of %s pods", pods)},
		Server:  version,
	}
	bytes, objects, rss := harness.Panel{Title: "live heap, bytes per pod"}, harness.Panel{Title: "heap objects per pod"}, harness.Panel{Title: "RSS, MB"}
	add := func(name, colour string, f harness.Footprint) {
		perPod, pieces := float64(f.Heap)/float64(n), float64(f.Objects)/float64(n)
		r.Row(name, harness.Thousands(fmt.Sprintf("%.0f", perPod)), fmt.Sprintf("%.1f", pieces),
			harness.Megabytes(float64(f.Heap)), harness.Megabytes(float64(f.RSS)), harness.Megabytes(float64(f.MaxRSS)))
		r.Figure.Subjects = append(r.Figure.Subjects, harness.Bar{Name: name, Colour: colour})
		bytes.Add(perPod, harness.Thousands(fmt.Sprintf("%.0f", perPod)))
		objects.Add(pieces, fmt.Sprintf("%.1f", pieces))
		rss.Add(float64(f.RSS)/1e6, harness.Thousands(harness.Megabytes(float64(f.RSS))))
	}
	packed := median["ours packed"]
	add("Watershed, packed, settled", harness.ColourOurs, packed.Settled)
	add("Watershed, packed, just synced", harness.ColourOurs, packed.Synced)
	add("Watershed, fast", harness.ColourOursPale, median["ours fast"].Settled)
	add("client-go, typed", harness.ColourClientGo, median["client-go"].Settled)
	add("client-go, dynamic", harness.ColourOther, median["dynamic"].Settled)
	r.Figure.Panels = []harness.Panel{bytes, objects, rss}
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
