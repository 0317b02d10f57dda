// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
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
func benchSync(out io.Writer) error { return syncTrial.RunWithPods(out, 30_000, printSync) }

// printSync prints the table, and the line for scripts.
func printSync(out io.Writer, c *harness.Cluster, median map[string]syncReading) error {
	fmt.Fprintf(out, "%d pods from kube-apiserver over TLS, each reader in a process of its own; the median of several\n\n", c.Pods)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "reader\tCPU s\tus/pod\twall s\tlive heap MB\tmax RSS MB")
	for _, s := range syncTrial.Subjects {
		r := median[s.Name]
		fmt.Fprintf(w, "%s\t%.2f\t%.1f\t%.2f\t%.0f\t%.0f\n", s.Name, r.CPU.Seconds(), float64(r.CPU.Microseconds())/float64(c.Pods),
			r.Wall.Seconds(), float64(r.Heap)/1e6, float64(r.RSS)/1e6)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	cpu := func(name string) float64 { return median[name].CPU.Seconds() }
	ours := cpu("ours typed")
	fmt.Fprintf(out, "\nsync: cpu ours=%.2f bare=%.2f client-go=%.2f dynamic=%.2f vs-bare=%.2f vs-client-go=%.2f vs-dynamic=%.2f\n",
		ours, cpu("bare"), cpu("client-go"), cpu("dynamic"), ours/cpu("bare"), cpu("client-go")/ours, cpu("dynamic")/ours)
	return nil
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
