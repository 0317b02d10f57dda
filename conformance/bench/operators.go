// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
)

const (
	// percentVariable is the percentage of the objects and of the reconciles.
	percentVariable = "WATERSHED_PERCENT"
	// profileVariable is the folder for CPU profiles of the reconciles.
	profileVariable = "WATERSHED_PROFILE"
	// operatorRole is the role of a process with one operator.
	operatorRole = "operator"
	// operatorRuns is how often each operator is measured with each cache.
	operatorRuns = 3
)

// operatorSides are the caches that are compared. The first is the one that the others
// are divided by.
var operatorSides = []struct {
	name      string
	ours, tap bool
}{
	{name: "controller-runtime"},
	{name: "compat", ours: true},
	{name: "compat and tap", ours: true, tap: true},
}

// operatorResults are the readings of each operator, by side.
type operatorResults [][]operatorReading

// benchOperators measures the reads of five operators, with controller-runtime's cache
// and with ours.
func benchOperators(out io.Writer) error {
	percent, err := harness.EnvInt(percentVariable, 100)
	if err != nil {
		return err
	}
	runs, err := harness.EnvInt(harness.EnvRuns, operatorRuns)
	if err != nil {
		return err
	}
	b := operatorsBench{operators: operators(percent), percent: percent}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: newOperatorsServer(b.operators), ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	medians, err := b.run(context.Background(), min(runs, operatorRuns))
	_ = server.Close() // ends Serve
	<-served
	if err != nil {
		return err
	}
	return b.print(out, medians, min(runs, operatorRuns))
}

// operatorsBench is one run of the benchmark.
type operatorsBench struct {
	operators []operator
	percent   int
	url       string
	processes int
}

// run measures everything several times, and returns the median readings by CPU time.
func (b *operatorsBench) run(ctx context.Context, runs int) (operatorResults, error) {
	only := os.Getenv(caseVariable)
	medians := make(operatorResults, len(b.operators))
	for i := range b.operators {
		if only != "" && b.operators[i].name != only {
			continue
		}
		medians[i] = make([]operatorReading, len(operatorSides))
		all := make([][]operatorReading, len(operatorSides))
		for range runs {
			readings, err := b.runOnce(ctx, i)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.operators[i].name, err)
			}
			for s, r := range readings {
				all[s] = append(all[s], r)
			}
		}
		for s := range all {
			slices.SortFunc(all[s], func(a, b operatorReading) int { return cmp.Compare(a.CPU, b.CPU) })
			medians[i][s] = all[s][len(all[s])/2]
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
			task.Profile = filepath.Join(folder, strings.ReplaceAll(b.operators[i].name+" "+side.name, " ", "-")+".pprof")
		}
		c, err := harness.StartChild(ctx, operatorRole, task)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		children[s] = c
	}
	for s, c := range children {
		var settled bool
		if err := c.Answer(&settled); err != nil {
			return nil, fmt.Errorf("%s did not sync: %w", operatorSides[s].name, err)
		}
	}
	readings := make([]operatorReading, len(operatorSides))
	for s, c := range children {
		if err := c.Command("reconcile"); err != nil {
			return nil, err
		}
		if err := c.Answer(&readings[s]); err != nil {
			return nil, fmt.Errorf("%s did not answer: %w", operatorSides[s].name, err)
		}
	}
	return readings, nil
}

// print writes the table and the line for scripts.
func (b *operatorsBench) print(out io.Writer, medians operatorResults, runs int) error {
	r := operatorsReport(b, medians, runs)
	if err := r.Write(out); err != nil {
		return err
	}
	without, with := medians.ratios(1), medians.ratios(2)
	fmt.Fprintf(out, "\nwithout the tap: cpu-ratio=%.2f heap-ratio=%.2f p99-ratio=%.2f\n", without.cpu, without.heap, without.p99)
	fmt.Fprintf(out, "operators: cpu-ratio=%.2f heap-ratio=%.2f p99-ratio=%.2f\n", with.cpu, with.heap, with.p99)
	return nil
}

// operatorRatios are the results of a side divided by those of controller-runtime's cache.
type operatorRatios struct{ cpu, heap, p99 float64 }

// ratiosOf returns the ratios of one operator.
func ratiosOf(readings []operatorReading, side int) operatorRatios {
	ours, theirs := readings[side], readings[0]
	return operatorRatios{
		cpu: ours.CPU.Seconds() / theirs.CPU.Seconds(), heap: float64(ours.Heap) / float64(theirs.Heap), p99: ours.P99.Seconds() / theirs.P99.Seconds(),
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
	median := func(of func(operatorRatios) float64) float64 {
		slices.SortFunc(all, func(a, b operatorRatios) int { return cmp.Compare(of(a), of(b)) })
		return of(all[len(all)/2])
	}
	return operatorRatios{
		cpu:  median(func(r operatorRatios) float64 { return r.cpu }),
		heap: median(func(r operatorRatios) float64 { return r.heap }),
		p99:  median(func(r operatorRatios) float64 { return r.p99 }),
	}
}

// operatorsReport returns the table and the figure.
func operatorsReport(b *operatorsBench, medians operatorResults, runs int) *harness.Report {
	times := "one run"
	if runs > 1 {
		times = fmt.Sprintf("the median of %d runs", runs)
	}
	r := &harness.Report{
		Name: "operators",
		Heading: fmt.Sprintf("Reads of five operators, each with each cache in a process of its own; %s. "+
			"CPU is per reconcile, with the change that caused it and garbage collection. "+
			"The ratios of the last line are the medians of the five operators' ratios to controller-runtime's cache.", times),
		Columns: []string{"operator", "cache", "gets", "lists", "listed", "CPU, us", "p50, us", "p99, us", "live heap, MB", "CPU ratio", "heap ratio", "p99 ratio"},
		Figure:  harness.Figure{Title: "Reads of five operators"},
		Partial: b.percent != 100 || os.Getenv(caseVariable) != "" || os.Getenv(profileVariable) != "",
	}
	for _, side := range operatorSides {
		colour := map[bool]string{false: harness.ColourClientGo, true: harness.ColourOursPale}[side.ours]
		if side.tap {
			colour = harness.ColourOurs
		}
		r.Figure.Subjects = append(r.Figure.Subjects, harness.Bar{Name: side.name, Colour: colour})
	}
	microseconds := func(d time.Duration) string { return harness.Thousands(fmt.Sprintf("%.0f", d.Seconds()*1e6)) }
	for i, readings := range medians {
		if readings == nil {
			continue
		}
		op := &b.operators[i]
		cpu, heap := harness.Panel{Title: op.name + ": CPU, us"}, harness.Panel{Title: op.name + ": live heap, MB"}
		for s, side := range operatorSides {
			m, ratio := readings[s], ratiosOf(readings, s)
			each := m.CPU / time.Duration(op.measured())
			r.Row(op.name, side.name, fmt.Sprintf("%.0f", m.Gets), fmt.Sprintf("%.0f", m.Lists), fmt.Sprintf("%.0f", m.Objects),
				microseconds(each), microseconds(m.P50), microseconds(m.P99), harness.Megabytes(float64(m.Heap)),
				fmt.Sprintf("%.2f", ratio.cpu), fmt.Sprintf("%.2f", ratio.heap), fmt.Sprintf("%.2f", ratio.p99))
			cpu.Add(each.Seconds()*1e6, microseconds(each))
			heap.Add(float64(m.Heap)/1e6, harness.Megabytes(float64(m.Heap)))
		}
		r.Figure.Panels = append(r.Figure.Panels, cpu, heap)
	}
	return r
}
