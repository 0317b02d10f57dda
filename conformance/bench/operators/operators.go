// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package operators measures the reads of five operators, with controller-runtime's cache and
// with ours. model.go describes the operators and their reads. objects.go makes the objects
// that they read. process.go runs one operator in a process of its own, and serves the objects.
package operators

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
)

const (
	// percentVariable is the percentage of the objects and of the reconciles.
	percentVariable = "WATERSHED_PERCENT"
	// profileVariable is the folder for CPU profiles of the reconciles.
	profileVariable = "WATERSHED_PROFILE"
	// caseVariable is the name of the only operator to measure.
	caseVariable = "WATERSHED_CASE"
	// RoleName is the name under which [Role] must be among the roles of the command.
	RoleName = "operator"
	// operatorRuns is how often each operator is measured with each cache.
	operatorRuns = 3
	// steadyTime is how long the reconciles at a low rate take, twice.
	steadyTime = 2 * time.Minute
)

// operatorSide is a cache.
type operatorSide struct {
	harness.Bar
	ours, tap bool
}

// operatorSides are the caches that are compared. The first is the one that the others
// are divided by.
var operatorSides = []operatorSide{
	{Bar: harness.Bar{Name: "controller-runtime", Colour: harness.ColourClientGo}},
	{Bar: harness.Bar{Name: "compat", Colour: harness.ColourOursPale}, ours: true},
	{Bar: harness.Bar{Name: "compat and tap", Colour: harness.ColourOurs}, ours: true, tap: true},
}

// operatorResults are the readings of each operator, by side.
type operatorResults [][]operatorReading

// Bench is the benchmark operators.
func Bench(out io.Writer) error {
	percent, err := harness.EnvInt(percentVariable, 100)
	if err != nil {
		return err
	}
	runs, err := harness.EnvInt(harness.EnvRuns, operatorRuns)
	if err != nil {
		return err
	}
	b := operatorsBench{operators: operators(percent), percent: percent, runs: min(runs, operatorRuns)}
	server := httptest.NewServer(newOperatorsServer(b.operators))
	defer server.Close()
	defer server.CloseClientConnections()
	b.url = server.URL
	steady, err := b.steady(context.Background())
	if err != nil {
		return err
	}
	medians, err := b.run(context.Background())
	if err != nil {
		return err
	}
	return b.report(medians, steady).Write(out)
}

// operatorsBench is one run of the benchmark.
type operatorsBench struct {
	operators []operator
	percent   int
	runs      int
	url       string
	processes int
}

// measures reports whether operator i is measured.
func (b *operatorsBench) measures(i int) bool {
	only := os.Getenv(caseVariable)
	return only == "" || b.operators[i].name == only
}

// steady measures all operators with each cache at a low rate, all side by side because they use
// little CPU time. The reading of one that is not measured is empty.
func (b *operatorsBench) steady(ctx context.Context) ([][]steadyReading, error) {
	all := make([][]steadyReading, len(b.operators))
	children := make([][]*harness.Child, len(b.operators))
	for i := range b.operators {
		if !b.measures(i) {
			continue
		}
		var err error
		children[i], err = b.start(ctx, i, steadyTime*time.Duration(b.percent)/100)
		for _, c := range children[i] {
			defer c.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range children {
		if err := b.settled(i, children[i]); err != nil {
			return nil, err
		}
	}
	for i := range children {
		for _, c := range children[i] {
			if err := c.Command("reconcile"); err != nil {
				return nil, err
			}
		}
	}
	for i := range children {
		all[i] = make([]steadyReading, len(operatorSides))
		for s, c := range children[i] {
			if err := c.Answer(&all[i][s]); err != nil {
				return nil, fmt.Errorf("%s of %s did not answer: %w", operatorSides[s].Name, b.operators[i].name, err)
			}
		}
	}
	return all, nil
}

// run measures everything several times, and returns the median readings by CPU time.
func (b *operatorsBench) run(ctx context.Context) (operatorResults, error) {
	medians := make(operatorResults, len(b.operators))
	for i := range b.operators {
		if !b.measures(i) {
			continue
		}
		medians[i] = make([]operatorReading, len(operatorSides))
		all := make([][]operatorReading, len(operatorSides))
		for range b.runs {
			readings, err := b.runOnce(ctx, i)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.operators[i].name, err)
			}
			for s, r := range readings {
				all[s] = append(all[s], r)
			}
		}
		for s := range all {
			medians[i][s] = harness.Median(all[s], func(r operatorReading) float64 { return r.CPU.Seconds() })
		}
	}
	return medians, nil
}

// start starts the processes of one operator, one for each cache. The caller closes them, also
// after an error.
func (b *operatorsBench) start(ctx context.Context, i int, steady time.Duration) (all []*harness.Child, err error) {
	settle := harness.RepackTime
	if b.percent < 100 {
		settle = 0
	}
	for _, side := range operatorSides {
		b.processes++
		task := operatorTask{
			URL: fmt.Sprintf("%s/%d/%d", b.url, i, b.processes), Operator: i, Percent: b.percent,
			Ours: side.ours, Tap: side.tap, Settle: settle, Steady: steady,
		}
		if folder := os.Getenv(profileVariable); folder != "" {
			task.Profile = filepath.Join(folder,
				strings.ReplaceAll(b.operators[i].name+" "+side.Name, " ", "-")+".pprof")
		}
		c, err := harness.StartChild(ctx, RoleName, task)
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}

// settled waits until the processes of one operator have settled.
func (b *operatorsBench) settled(i int, children []*harness.Child) error {
	for s, c := range children {
		var settled bool
		if err := c.Answer(&settled); err != nil {
			return fmt.Errorf("%s of %s did not sync: %w", operatorSides[s].Name, b.operators[i].name, err)
		}
	}
	return nil
}

// runOnce measures one operator with each cache. The processes settle at the same time,
// which takes a minute and little CPU time, and reconcile one after the other.
func (b *operatorsBench) runOnce(ctx context.Context, i int) ([]operatorReading, error) {
	children, err := b.start(ctx, i, 0)
	for _, c := range children {
		defer c.Close()
	}
	if err != nil {
		return nil, err
	}
	if err := b.settled(i, children); err != nil {
		return nil, err
	}
	readings := make([]operatorReading, len(operatorSides))
	for s, c := range children {
		if err := c.Command("reconcile"); err != nil {
			return nil, err
		}
		if err := c.Answer(&readings[s]); err != nil {
			return nil, fmt.Errorf("%s did not answer: %w", operatorSides[s].Name, err)
		}
	}
	return readings, nil
}

// operatorRatios are the results of a side divided by those of controller-runtime's cache.
type operatorRatios struct{ cpu, heap, p99, steadyHeap float64 }

// ratiosOf returns the ratios of one operator.
func ratiosOf(readings []operatorReading, steady []steadyReading, side int) operatorRatios {
	ours, theirs := readings[side], readings[0]
	return operatorRatios{
		cpu:        ours.CPU.Seconds() / theirs.CPU.Seconds(),
		heap:       float64(ours.Heap) / float64(theirs.Heap),
		p99:        ours.P99.Seconds() / theirs.P99.Seconds(),
		steadyHeap: float64(steady[side].Heap) / float64(steady[0].Heap),
	}
}

// summary returns the largest and the median ratios of all operators that were measured.
func (m operatorResults) summary(steady [][]steadyReading, side int) string {
	var all []operatorRatios
	for i, readings := range m {
		if readings != nil {
			all = append(all, ratiosOf(readings, steady[i], side))
		}
	}
	cpu := func(r operatorRatios) float64 { return r.cpu }
	heap := func(r operatorRatios) float64 { return r.heap }
	p99 := func(r operatorRatios) float64 { return r.p99 }
	largest := func(of func(operatorRatios) float64) (most float64) {
		for _, r := range all {
			most = max(most, of(r))
		}
		return most
	}
	median := func(of func(operatorRatios) float64) float64 { return of(harness.Median(all, of)) }
	return fmt.Sprintf("cpu-max=%.2f p99-max=%.2f heap-max=%.2f steady-heap-max=%.2f "+
		"cpu-ratio=%.2f heap-ratio=%.2f p99-ratio=%.2f",
		largest(cpu), largest(p99), largest(heap), largest(func(r operatorRatios) float64 { return r.steadyHeap }),
		median(cpu), median(heap), median(p99))
}

// report returns the report.
func (b *operatorsBench) report(medians operatorResults, steady [][]steadyReading) *harness.Report {
	r := &harness.Report{
		Name: "operators",
		Heading: fmt.Sprintf("Reads of five operators, each with each cache in a process of its own; %s. "+
			"CPU is per reconcile, with the change that caused it and garbage collection. "+
			"Steady is at 0.2 reconciles a second, once. "+
			"Ratios are to controller-runtime's cache.",
			harness.Repetitions(b.runs)),
		Columns:  []string{"operator", "cache"},
		Measures: harness.Compat,
		Figure:   harness.Figure{Title: "Reads of five operators"},
		Partial:  b.percent != 100 || os.Getenv(caseVariable) != "" || os.Getenv(profileVariable) != "",
		Summary: fmt.Sprintf("without the tap: %s\noperators: %s",
			medians.summary(steady, 1), medians.summary(steady, 2)),
	}
	// reading is the median of one side, and its ratios.
	type reading struct {
		operatorReading
		steady steadyReading
		ratio  operatorRatios
	}
	us := func(d time.Duration) float64 { return d.Seconds() * 1e6 }
	for i, readings := range medians {
		if readings == nil {
			continue
		}
		op := &b.operators[i]
		var rows []harness.Row[reading]
		for s, side := range operatorSides {
			m := reading{readings[s], steady[i][s], ratiosOf(readings, steady[i], s)}
			rows = append(rows, harness.Row[reading]{
				Bar: side.Bar, Cells: []string{op.name, side.Name},
				Key:     harness.Key(op.name) + "." + harness.Key(side.Name),
				Reading: m,
			})
		}
		harness.AddRows(r, rows,
			harness.Col("gets", "%.0f", func(m reading) float64 { return m.Gets }),
			harness.Col("lists", "%.0f", func(m reading) float64 { return m.Lists }),
			harness.Col("listed", "%.0f", func(m reading) float64 { return m.Objects }),
			harness.Col("CPU, us", harness.Grouped,
				func(m reading) float64 { return us(m.CPU) / float64(op.measured()) }, op.name+": CPU, us").
				As("cpu", "us"),
			harness.Col("p50, us", harness.Grouped, func(m reading) float64 { return us(m.P50) }),
			harness.Col("p99, us", harness.Grouped, func(m reading) float64 { return us(m.P99) }).As("p99", "us"),
			harness.Col("live heap, MB", harness.MB, func(m reading) int64 {
				return m.Heap
			}, op.name+": live heap, MB").As("heap", "bytes"),
			harness.Col("steady heap, MB", harness.MB, func(m reading) int64 {
				return m.steady.Heap
			}).As("steady-heap", "bytes"),
			harness.Col("read per minute, %", "%.1f", func(m reading) float64 {
				return 100 * m.steady.Share
			}).As("read-share", "%"),
			harness.Col("CPU ratio", "%.2f", func(m reading) float64 { return m.ratio.cpu }).As("cpu-ratio", ""),
			harness.Col("heap ratio", "%.2f", func(m reading) float64 { return m.ratio.heap }).As("heap-ratio", ""),
			harness.Col("p99 ratio", "%.2f", func(m reading) float64 { return m.ratio.p99 }).As("p99-ratio", ""),
			harness.Col("steady heap ratio", "%.2f", func(m reading) float64 { return m.ratio.steadyHeap }).
				As("steady-heap-ratio", ""),
		)
	}
	return r
}
