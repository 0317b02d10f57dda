// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package operators measures the reads of five operators, with controller-runtime's cache and
// with ours. Model has the operators, objects what they read, process a process with one
// operator and the server of its objects.
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
	medians, err := b.run(context.Background())
	if err != nil {
		return err
	}
	return b.report(medians).Write(out)
}

// operatorsBench is one run of the benchmark.
type operatorsBench struct {
	operators []operator
	percent   int
	runs      int
	url       string
	processes int
}

// run measures everything several times, and returns the median readings by CPU time.
func (b *operatorsBench) run(ctx context.Context) (operatorResults, error) {
	only := os.Getenv(caseVariable)
	medians := make(operatorResults, len(b.operators))
	for i := range b.operators {
		if only != "" && b.operators[i].name != only {
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

// runOnce measures one operator with each cache. The processes settle at the same time,
// which takes a minute and little CPU time, and reconcile one after the other.
func (b *operatorsBench) runOnce(ctx context.Context, i int) ([]operatorReading, error) {
	settle := harness.RepackTime
	if b.percent < 100 {
		settle = 0
	}
	children := make([]*harness.Child, len(operatorSides))
	for s, side := range operatorSides {
		b.processes++
		task := operatorTask{
			URL: fmt.Sprintf("%s/%d/%d", b.url, i, b.processes), Operator: i, Percent: b.percent,
			Ours: side.ours, Tap: side.tap, Settle: settle,
		}
		if folder := os.Getenv(profileVariable); folder != "" {
			task.Profile = filepath.Join(folder,
				strings.ReplaceAll(b.operators[i].name+" "+side.Name, " ", "-")+".pprof")
		}
		c, err := harness.StartChild(ctx, RoleName, task)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		children[s] = c
	}
	for s, c := range children {
		var settled bool
		if err := c.Answer(&settled); err != nil {
			return nil, fmt.Errorf("%s did not sync: %w", operatorSides[s].Name, err)
		}
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
type operatorRatios struct{ cpu, heap, p99 float64 }

func (r operatorRatios) String() string {
	return fmt.Sprintf("cpu-ratio=%.2f heap-ratio=%.2f p99-ratio=%.2f", r.cpu, r.heap, r.p99)
}

// ratiosOf returns the ratios of one operator.
func ratiosOf(readings []operatorReading, side int) operatorRatios {
	ours, theirs := readings[side], readings[0]
	return operatorRatios{
		cpu:  ours.CPU.Seconds() / theirs.CPU.Seconds(),
		heap: float64(ours.Heap) / float64(theirs.Heap),
		p99:  ours.P99.Seconds() / theirs.P99.Seconds(),
	}
}

// ratios returns the median ratios of all operators that were measured.
func (m operatorResults) ratios(side int) operatorRatios {
	var all []operatorRatios
	for _, readings := range m {
		if readings != nil {
			all = append(all, ratiosOf(readings, side))
		}
	}
	median := func(of func(operatorRatios) float64) float64 { return of(harness.Median(all, of)) }
	return operatorRatios{
		cpu:  median(func(r operatorRatios) float64 { return r.cpu }),
		heap: median(func(r operatorRatios) float64 { return r.heap }),
		p99:  median(func(r operatorRatios) float64 { return r.p99 }),
	}
}

// report returns the report.
func (b *operatorsBench) report(medians operatorResults) *harness.Report {
	without, with := medians.ratios(1), medians.ratios(2)
	r := &harness.Report{
		Name: "operators",
		Heading: fmt.Sprintf("Reads of five operators, each with each cache in a process of its own; %s. "+
			"CPU is per reconcile, with the change that caused it and garbage collection. "+
			"Ratios are to controller-runtime's cache.",
			harness.Repetitions(b.runs)),
		Columns:  []string{"operator", "cache"},
		Measures: harness.Compat,
		Figure:   harness.Figure{Title: "Reads of five operators"},
		Partial:  b.percent != 100 || os.Getenv(caseVariable) != "" || os.Getenv(profileVariable) != "",
		Summary:  fmt.Sprintf("without the tap: %v\noperators: %v", without, with),
	}
	// reading is the median of one side, and its ratios.
	type reading struct {
		operatorReading
		ratio operatorRatios
	}
	us := func(d time.Duration) float64 { return d.Seconds() * 1e6 }
	for i, readings := range medians {
		if readings == nil {
			continue
		}
		op := &b.operators[i]
		var rows []harness.Row[reading]
		for s, side := range operatorSides {
			m := reading{readings[s], ratiosOf(readings, s)}
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
			harness.Col("CPU ratio", "%.2f", func(m reading) float64 { return m.ratio.cpu }).As("cpu-ratio", ""),
			harness.Col("heap ratio", "%.2f", func(m reading) float64 { return m.ratio.heap }).As("heap-ratio", ""),
			harness.Col("p99 ratio", "%.2f", func(m reading) float64 { return m.ratio.p99 }).As("p99-ratio", ""),
		)
	}
	return r
}
