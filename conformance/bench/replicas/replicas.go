// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package replicas measures a replica group: what clients notice when a replica is killed (failover.go),
// what a group costs a replica and a write (cost.go), and what two replicas cost the clusters (load.go).
package replicas

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// caseVariable is the only part to measure: failover, cost or load.
	caseVariable = "WATERSHED_CASE"
	// binaryVariable is the path of a program that is already built.
	binaryVariable = "WATERSHED_BINARY"
	// groupNamespace is the namespace of the Leases.
	groupNamespace = "default"
	// podCount is how many pods the mirrored cluster has.
	podCount = 2000
)

// bench is one run of the benchmark.
type bench struct {
	*harness.Cluster
	// dir is for files of the run. binary is the measured program.
	dir, binary string
	audit       string
}

// Bench is the benchmark replicas.
func Bench(out io.Writer) (err error) {
	ctx := context.Background()
	only := os.Getenv(caseVariable)
	if !slices.Contains([]string{"", "failover", "load", "cost"}, only) {
		return fmt.Errorf("%s=%s is not failover, load or cost", caseVariable, only)
	}
	b := &bench{}
	if b.dir, err = os.MkdirTemp("", "watershed-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	var fails failover
	if only == "" || only == "failover" {
		if fails, err = measureFailover(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, fails)
	}
	if only == "failover" {
		return nil
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	defer b.Close()
	if only == "" || only == "load" {
		loads, err := b.measureLoads(ctx)
		if err != nil {
			return err
		}
		if err := b.loadReport(loads).Write(out); err != nil {
			return err
		}
	}
	if only == "load" {
		return nil
	}
	cost, err := b.measureCost(ctx)
	if err != nil {
		return err
	}
	return b.report(fails, cost).Write(out)
}

// start builds the program and starts the cluster, which records the requests for Leases of the group.
func (b *bench) start(ctx context.Context) (err error) {
	if b.binary = os.Getenv(binaryVariable); b.binary == "" {
		if b.binary, err = harness.BuildReplica(ctx, b.dir); err != nil {
			return err
		}
	}
	pods, err := harness.EnvInt(harness.EnvPods, podCount)
	if err != nil {
		return err
	}
	policy := filepath.Join(b.dir, "policy.json")
	b.audit = filepath.Join(b.dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	c, err := kubetest.New(ctx, &kubetest.Options{APIServerArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + b.audit,
	}})
	if err != nil {
		return err
	}
	version, err := harness.ServerVersion(c.Config())
	if err == nil {
		err = c.LoadPods(ctx, kubetest.Workload{Seed: 1}, pods)
	}
	if err != nil {
		c.Close()
		return err
	}
	b.Cluster = &harness.Cluster{Cluster: c, Pods: pods, Version: version}
	return nil
}

// groupFlags make a replica a member of a group that listens for the others at an address.
func (b *bench) groupFlags(group, listen string) []string {
	return []string{
		"--replica-group", group, "--group-cluster", b.Name(), "--group-namespace", groupNamespace,
		"--group-listen", listen,
	}
}

// report returns the report of the fail-over and of the costs of a replica.
func (b *bench) report(f failover, c cost) *harness.Report {
	alone, group := c.readings()
	added, least, most := c.cpuAdded()
	r := &harness.Report{
		Name: "replicas",
		Heading: strings.Join([]string{
			fmt.Sprintf("Two replicas of %s pods with `--pass-through`; each has %d reads and %d writes/s, and the "+
				"cluster %d changes/s; %d periods of %d s, in turns with two replicas without a group.",
				harness.Whole(float64(b.Pods)), costReads, costWrites, costChanges, len(c.cpu[0]),
				int(c.each.Seconds())),
			fmt.Sprintf("CPU and memory of one replica; in a group %s of CPU more (%s to %s in a period; %d us for "+
				"the note of each write, in both replicas together), and %.1f MB more.",
				percent(added), percent(least), percent(most), c.noteCPU().Microseconds(), c.memoryAdded()/1e6),
			fmt.Sprintf("%d writes through a replica of each pair, one at a time.", len(c.writes[0])), f.String() + ".",
		}, " "),
		Columns:  []string{"replica"},
		Measures: harness.Program,
		Server:   b.Version,
		Partial:  harness.IsExperiment() || os.Getenv(caseVariable) != "" || f.reduced,
		Figure:   harness.Figure{Title: "A replica alone and in a group"},
		Summary: fmt.Sprintf("replicas: failover-ms-p99=%d silence-ms-max=%d relists=%d write-ms-added=%.2f "+
			"cpu-added=%s", f.p99, f.silence, f.relists, c.writeAdded(), percent(added)),
	}
	type reading = costReading
	harness.AddRows(r, []harness.Row[reading]{
		{Bar: harness.Bar{Name: "alone", Colour: harness.ColourOursPale}, Key: "alone", Reading: alone},
		{Bar: harness.Bar{Name: "in a group of two", Colour: harness.ColourOurs}, Key: "group", Reading: group},
	},
		harness.Ms("a write, p50, ms", "%.2f", func(r reading) time.Duration { return r.p50 }, "a write, p50, ms").
			As("write-p50", "ms"),
		harness.Ms("p99, ms", "%.2f", func(r reading) time.Duration { return r.p99 }).As("write-p99", "ms"),
		harness.Col("CPU, ms in a second", "%.1f", func(r reading) float64 { return r.cpu * 1e3 },
			"CPU, ms in a second").As("cpu", "ms"),
		harness.Col("at rest", "%.1f", func(r reading) float64 { return r.rest * 1e3 }).As("rest", "ms"),
		harness.Col("RSS, MB", "%.1f", func(r reading) float64 { return r.memory / 1e6 }, "RSS, MB").As("memory", "MB"),
	)
	r.Value("failover.p99", float64(f.p99), "ms")
	r.Value("failover.silence", float64(f.silence), "ms")
	r.Value("failover.relists", float64(f.relists), "")
	r.Value("failover.failed", float64(f.failed), "")
	r.Value("write-added", c.writeAdded(), "ms")
	r.Value("cpu-added", added*100, "%")
	r.Value("note-cpu", float64(c.noteCPU().Microseconds()), "us")
	r.Value("memory-added", c.memoryAdded()/1e6, "MB")
	return r
}

// percent returns a share as text.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", share*100) }
