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

var syncTrial = harness.Trial[syncReading]{
	Name: "sync",
	Subjects: []harness.Subject[syncReading]{
		{Name: "bare", Runs: 9, Measure: measureSync(harness.ReadBare)},
		{Name: "ours raw", Runs: 9, Measure: measureSync(harness.ReadRaw)},
		{Name: "ours typed", Runs: 9, Measure: measureSync(harness.ReadTyped)},
		{Name: "client-go", Runs: 5, Measure: measureSync(harness.ReadClientGo)},
		{Name: "dynamic", Runs: 1, Measure: measureSync(harness.ReadDynamic)},
	},
	Warm:  true,
	Order: func(r syncReading) float64 { return r.CPU.Seconds() },
}

// syncReading is the result that a process has measured of itself.
type syncReading struct {
	CPU, Wall time.Duration
	// Heap is the live heap after the sync, and RSS the largest RSS of the process.
	Heap, RSS uint64
}

// benchSync measures the first list of 30,000 pods from a real API server.
func benchSync(out io.Writer) error { return syncTrial.RunWithPods(out, 30_000, syncReport) }

// syncReport returns the report.
func syncReport(c *harness.Cluster, median map[string]syncReading) *harness.Report {
	cpu := func(name string) float64 { return median[name].CPU.Seconds() }
	ours := cpu("ours typed")
	bare := cpu("bare")
	theirs := cpu("client-go")
	dynamic := cpu("dynamic")
	r := &harness.Report{
		Heading: fmt.Sprintf("%d pods from kube-apiserver over TLS, "+
			"each reader in a process of its own; the median of several", c.Pods),
		Columns:  []string{"reader"},
		Measures: harness.Informer,
		Summary: fmt.Sprintf("sync: cpu ours=%.2f bare=%.2f client-go=%.2f dynamic=%.2f "+
			"vs-bare=%.2f vs-client-go=%.2f vs-dynamic=%.2f",
			ours, bare, theirs, dynamic, ours/bare, theirs/ours, dynamic/ours),
	}
	type reading = syncReading
	harness.AddRows(r, syncTrial.Rows(median),
		harness.Col("CPU s", "%.2f", func(r reading) float64 { return r.CPU.Seconds() }).As("cpu", "s"),
		harness.Col("us/pod", "%.1f", func(r reading) float64 { return r.CPU.Seconds() * 1e6 / float64(c.Pods) }).
			As("per-pod", "us"),
		harness.Col("wall s", "%.2f", func(r reading) float64 { return r.Wall.Seconds() }),
		harness.Col("live heap MB", harness.MB, func(r reading) uint64 { return r.Heap }).As("heap", "bytes"),
		harness.Col("max RSS MB", harness.MB, func(r reading) uint64 { return r.RSS }).As("max-rss", "bytes"),
	)
	return r
}

// measureSync returns the measurement of a reader in this process.
func measureSync(read harness.Reader) func(context.Context) (syncReading, error) {
	return harness.OfCluster(func(ctx context.Context, cfg *rest.Config, n int) (syncReading, error) {
		began, used := time.Now(), harness.CPUTime()
		kept, err := read(ctx, cfg, n)
		if err != nil {
			return syncReading{}, err
		}
		r := syncReading{CPU: harness.CPUTime() - used, Wall: time.Since(began)}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		r.Heap, r.RSS = m.HeapAlloc, harness.MaxRSS()
		runtime.KeepAlive(kept)
		return r, nil
	})
}
