// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
)

const (
	watchPods    = 5000
	watchSeconds = 20
	// watchWarm is how many seconds of changes are made before they count.
	watchWarm = 2
	// watchDrain is how long changes may be in transit.
	watchDrain = time.Second
	// caseVariable is the name of the only case to measure.
	caseVariable = "WATERSHED_CASE"
)

// watchCase is a number of watchers and a rate of changes.
type watchCase struct {
	name     string
	watchers int
	// rate is changes per second.
	rate int
	// selector is a label selector that no pod matches; "" is all pods.
	selector string
	// fields is a field selector that each pod matches for one watcher.
	fields string
	// streams is how many watchers share a connection; 0 is one.
	streams int
	// of describes the watched objects, for the table.
	of string
}

var watchCases = []watchCase{
	{name: "shared", watchers: 200, rate: 100, of: "all pods"},
	{name: "selective", watchers: 1000, rate: 200, selector: "app=none-%d", of: "other labels"},
	{name: "burst", watchers: 20, rate: 1000, of: "all pods"},
	{
		name:     "nodes",
		watchers: 5000,
		rate:     200,
		fields:   "spec.nodeName=node-%d",
		streams:  100,
		of:       "one node's pods each",
	},
}

// receivers returns how many watchers receive each change.
func (w *watchCase) receivers() int {
	switch {
	case w.selector != "":
		return 0
	case w.fields != "":
		return 1
	}
	return w.watchers
}

// chosenCases returns the cases to measure.
func chosenCases() ([]watchCase, error) {
	name := os.Getenv(caseVariable)
	if name == "" {
		return watchCases, nil
	}
	for _, w := range watchCases {
		if w.name == name {
			return []watchCase{w}, nil
		}
	}
	return nil, fmt.Errorf("%s=%s is not a case", caseVariable, name)
}

// watchReading is the cost of watchers for a server.
type watchReading struct {
	// cpu is the processor time for all watchers.
	cpu time.Duration
	// each is the processor time for one change and one watcher.
	each time.Duration
	// noise is half the difference between the two measurements without watchers, for the
	// same number of events: each is not known more precisely.
	noise time.Duration
	// share is the delivered part of the events that were due.
	share float64
	harness.Delivered
}

// watchReadings are the readings of one case.
type watchReadings struct {
	kube, ours, bare watchReading
	// rate is how many changes per second were made.
	rate float64
}

// watchBench has the servers that are compared.
type watchBench struct {
	*harness.Servers
	// stored are changes in etcd. Ours and Bare receive them from Kube.
	stored  *harness.Changes
	seconds int
	// alone are the processor times of the servers for the changes of the case that is
	// measured, without watchers, one after the other.
	alone [][]time.Duration
}

// benchWatch measures the processor time of servers that are watched.
func benchWatch(out io.Writer) error {
	cases, err := chosenCases()
	if err != nil {
		return err
	}
	b := &watchBench{}
	if b.seconds, err = harness.EnvInt(harness.EnvSeconds, watchSeconds); err != nil {
		return err
	}
	ctx := context.Background()
	if b.Servers, err = harness.StartServers(ctx, watchPods); err != nil {
		return err
	}
	defer b.Close()
	if b.stored, err = harness.StoredChanges(b.Cluster.Cluster, b.Pods); err != nil {
		return err
	}
	return b.run(ctx, out, cases)
}

// run measures the cases and prints the report.
func (b *watchBench) run(ctx context.Context, out io.Writer, cases []watchCase) (err error) {
	found := map[string]watchReadings{}
	for _, w := range cases {
		if found[w.name], err = b.measure(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	r := watchReport(b.seconds, cases, found)
	r.Server, r.Partial = b.Version, harness.IsExperiment() || len(cases) < len(watchCases)
	for _, w := range cases {
		if f := found[w.name]; f.kube.Ended+f.ours.Ended+f.bare.Ended > 0 {
			r.Summary += w.name + ": servers ended watches, and what was missed was sent again: " +
				"this is what overload costs, not watching\n\n"
		}
	}
	r.Summary += "watch: " + watchSummary(found)
	return r.Write(out)
}

// watchSummary returns the line for scripts.
func watchSummary(found map[string]watchReadings) string {
	var parts []string
	x := func(name string) {
		if f, ok := found[name]; ok {
			parts = append(parts, name+"-ratio="+harness.Ratio(f.ours.each, f.kube.each))
		}
	}
	p99 := func(f watchReadings) string {
		return fmt.Sprintf("p99-ms ours=%.1f apiserver=%.1f", f.ours.P99.Seconds()*1e3, f.kube.P99.Seconds()*1e3)
	}
	x("shared")
	shared, ok := found["shared"]
	if ok {
		parts = append(parts, "of-bare="+harness.Ratio(shared.ours.each, shared.bare.each))
	}
	x("selective")
	x("burst")
	if ok {
		parts = append(parts, p99(shared))
	}
	x("nodes")
	if nodes, ok := found["nodes"]; ok {
		parts = append(parts, "nodes-"+p99(nodes))
	}
	return strings.Join(parts, " ")
}

// measure measures one case with each server. The changes alone have a cost too, which
// is measured without watchers, before and after each server, and subtracted. Ours and Bare
// always watch Kube.
func (b *watchBench) measure(ctx context.Context, w watchCase) (r watchReadings, err error) {
	b.alone = nil
	// What the first changes of a case cost does not count: they make caches grow.
	if _, err := b.stored.Run(ctx, w.rate*watchWarm, w.rate); err != nil {
		return r, err
	}
	if r.rate, err = b.changeAlone(ctx, w); err != nil {
		return r, err
	}
	readings := []*watchReading{&r.kube, &r.ours, &r.bare}
	for i, s := range b.servers() {
		if s == &b.Bare.Server && w.receivers() < w.watchers {
			continue // the bare server has no selectors
		}
		if *readings[i], err = b.watched(ctx, w, i); err != nil {
			return r, err
		}
	}
	return r, nil
}

// servers returns the servers in the order in which they are measured.
func (b *watchBench) servers() []*harness.Server {
	return []*harness.Server{b.Kube, &b.Ours.Server, &b.Bare.Server}
}

// changeAlone makes the changes of a case without watchers.
func (b *watchBench) changeAlone(ctx context.Context, w watchCase) (rate float64, err error) {
	cpu, rate, err := b.change(ctx, w, nil)
	b.alone = append(b.alone, cpu)
	return rate, err
}

// change makes the changes of a case, and returns the processor time of each server for
// them and their delivery to watchers.
func (b *watchBench) change(
	ctx context.Context, w watchCase, to *harness.Watchers,
) (cpu []time.Duration, rate float64, err error) {
	servers := b.servers()
	cpu = make([]time.Duration, len(servers))
	for i, s := range servers {
		if cpu[i], err = s.CPU(); err != nil {
			return nil, 0, err
		}
	}
	if rate, err = b.stored.Run(ctx, w.rate*b.seconds, w.rate); err != nil {
		return nil, 0, err
	}
	time.Sleep(watchDrain)
	if due := w.receivers() * w.rate * b.seconds; to != nil && due > 0 {
		if err := to.Wait(due); err != nil {
			return nil, 0, err
		}
	}
	for i, s := range servers {
		after, err := s.CPU()
		if err != nil {
			return nil, 0, err
		}
		cpu[i] = after - cpu[i]
	}
	return cpu, rate, nil
}

// watched makes the changes of a case while the server of that number is watched, and once
// more without watchers.
func (b *watchBench) watched(ctx context.Context, w watchCase, server int) (r watchReading, err error) {
	s := b.servers()[server]
	all, err := harness.StartWatchers(ctx, harness.WatchTask{
		At: s.Address(), Watchers: w.watchers, Selector: w.selector, Fields: w.fields, Streams: max(1, w.streams),
	})
	if err != nil {
		return r, err
	}
	defer all.Close()
	if _, err := b.stored.Run(ctx, w.rate*watchWarm, w.rate); err != nil {
		return r, err
	}
	time.Sleep(watchDrain)
	if err := all.Count(); err != nil {
		return r, err
	}
	wait := func() error { return nil }
	if s == &b.Ours.Server {
		wait = b.Ours.Profile("watch-"+w.name, time.Duration(b.seconds)*time.Second)
	}
	cpu, _, err := b.change(ctx, w, all)
	if err := errors.Join(err, wait()); err != nil {
		return r, err
	}
	if r.Delivered, err = all.Report(); err != nil {
		return r, err
	}
	all.Close()
	if _, err := b.changeAlone(ctx, w); err != nil {
		return r, err
	}
	return r, b.divide(&r, w, server, cpu[server])
}

// divide computes the processor time for each event from all of it.
func (b *watchBench) divide(r *watchReading, w watchCase, server int, all time.Duration) error {
	before, after := b.alone[len(b.alone)-2][server], b.alone[len(b.alone)-1][server]
	r.cpu = max(harness.ClockTick, all-(before+after)/2)
	r.share = 1
	events := w.watchers * w.rate * b.seconds
	due := w.receivers() * w.rate * b.seconds
	switch {
	case due == 0 && (r.Events > 0 || r.Ended > 0):
		return fmt.Errorf("watchers of %s that select nothing got %d events, and %d watches ended",
			b.servers()[server].Name, r.Events, r.Ended)
	case due > 0 && r.Events == 0:
		return fmt.Errorf("watchers of %s got nothing", b.servers()[server].Name)
	case due > 0:
		events = r.Events
		r.share = float64(r.Events) / float64(due)
	}
	r.each = r.cpu / time.Duration(events)
	r.noise = (after - before).Abs() / 2 / time.Duration(events)
	return nil
}

// watchReport returns the report without its summary.
func watchReport(seconds int, cases []watchCase, found map[string]watchReadings) *harness.Report {
	r := &harness.Report{
		Name: "watch",
		Heading: fmt.Sprintf("Pods of 7.7 KB as JSON; each watcher has a TLS connection of its own with HTTP/2, "+
			"but in nodes 100 share one; %d s each. CPU is what the server takes more with the watchers than "+
			"without, for each change and watcher; "+
			"in nodes, where a change concerns one watcher, for each change. +/- is half the difference between "+
			"the measurements without watchers before and after. The bare server repeats the events of a watch of "+
			"kube-apiserver.", seconds),
		Columns:  []string{"watchers", "server"},
		Measures: harness.Program,
		Figure:   harness.Figure{Title: "Watching pods"},
	}
	type reading = watchReading
	ms := func(d time.Duration) float64 {
		if d == 0 {
			return math.NaN() // no events were due
		}
		return harness.InMilliseconds(d)
	}
	for _, w := range cases {
		readings := found[w.name]
		name := fmt.Sprintf("%s: %s of %s, %s changes/s",
			w.name, harness.Whole(float64(w.watchers)), w.of, harness.Whole(readings.rate))
		row := func(key, server, colour string, m reading) harness.Row[reading] {
			return harness.Row[reading]{
				Bar: harness.Bar{Name: server, Colour: colour}, Cells: []string{name, server}, Key: w.name + "." + key,
				Reading: m, Missing: m.cpu == 0,
			}
		}
		harness.AddRows(r, []harness.Row[reading]{
			row("ours", "Watershed", harness.ColourOurs, readings.ours),
			row("bare", "bare net/http", harness.ColourOursPale, readings.bare),
			row("kube", "kube-apiserver", harness.ColourClientGo, readings.kube),
		},
			harness.Col("CPU, us", "%.3g", func(m reading) float64 { return float64(m.each) / 1e3 }, w.name+", us").
				As("cpu", "us"),
			harness.Col("+/-, us", "%.2g", func(m reading) float64 { return float64(m.noise) / 1e3 }).As("noise", "us"),
			harness.Col("delivered", "%.4g%%", func(m reading) float64 { return m.share * 100 }),
			harness.Col("p50, ms", "%.1f", func(m reading) float64 { return ms(m.P50) }).As("p50", "ms"),
			harness.Col("p99, ms", "%.1f", func(m reading) float64 { return ms(m.P99) }).As("p99", "ms"),
			harness.Col("max, ms", "%.1f", func(m reading) float64 { return ms(m.Max) }),
			harness.Col("KB", "%.1f", func(m reading) float64 {
				return float64(m.Bytes) / 1e3 / float64(max(1, m.Events))
			}),
			harness.Col("watches ended", "%.0f", func(m reading) int { return m.Ended }),
		)
	}
	return r
}
