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
	// stored are changes in etcd, for Kube and Ours.
	stored *harness.Changes
	// frames are changes for Bare.
	frames  *harness.Changes
	seconds int
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
	if b.frames, err = harness.FrameChanges(b.Bare, b.Pods); err != nil {
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
// is measured without watchers and subtracted. The replica's own watch is always open.
func (b *watchBench) measure(ctx context.Context, w watchCase) (r watchReadings, err error) {
	alone, _, err := b.change(ctx, b.stored, w, nil, b.Kube, &b.Ours.Server)
	if err != nil {
		return r, err
	}
	if r.kube, r.rate, err = b.watched(ctx, b.stored, w, b.Kube, alone[0]); err != nil {
		return r, err
	}
	if r.ours, _, err = b.watched(ctx, b.stored, w, &b.Ours.Server, alone[1]); err != nil {
		return r, err
	}
	if w.receivers() < w.watchers {
		return r, nil // the bare server has no selectors
	}
	r.bare, _, err = b.watched(ctx, b.frames, w, &b.Bare.Server, 0)
	return r, err
}

// change makes the changes of a case, and returns the processor time of each server for
// them and their delivery to watchers.
func (b *watchBench) change(
	ctx context.Context, c *harness.Changes, w watchCase, to *harness.Watchers, servers ...*harness.Server,
) (cpu []time.Duration, rate float64, err error) {
	cpu = make([]time.Duration, len(servers))
	for i, s := range servers {
		if cpu[i], err = s.CPU(); err != nil {
			return nil, 0, err
		}
	}
	if rate, err = c.Run(ctx, w.rate*b.seconds, w.rate); err != nil {
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

// watched makes the changes of a case while a server is watched.
func (b *watchBench) watched(
	ctx context.Context, c *harness.Changes, w watchCase, s *harness.Server, alone time.Duration,
) (r watchReading, rate float64, err error) {
	all, err := harness.StartWatchers(ctx, harness.WatchTask{
		At: s.Address(), Watchers: w.watchers, Selector: w.selector, Fields: w.fields, Streams: max(1, w.streams),
	})
	if err != nil {
		return r, 0, err
	}
	defer all.Close()
	if _, err := c.Run(ctx, w.rate*watchWarm, w.rate); err != nil {
		return r, 0, err
	}
	time.Sleep(watchDrain)
	if err := all.Count(); err != nil {
		return r, 0, err
	}
	wait := func() error { return nil }
	if s == &b.Ours.Server {
		wait = b.Ours.Profile("watch-"+w.name, time.Duration(b.seconds)*time.Second)
	}
	cpu, rate, err := b.change(ctx, c, w, all, s)
	if err := errors.Join(err, wait()); err != nil {
		return r, 0, err
	}
	if r.Delivered, err = all.Report(); err != nil {
		return r, 0, err
	}
	r.cpu, r.share = max(harness.ClockTick, cpu[0]-alone), 1
	due := w.receivers() * w.rate * b.seconds
	if due == 0 {
		if r.Events > 0 || r.Ended > 0 {
			return r, 0, fmt.Errorf("watchers of %s that select nothing got %d events, and %d watches ended", s.Name,
				r.Events, r.Ended)
		}
		r.each = r.cpu / time.Duration(w.watchers*w.rate*b.seconds)
		return r, rate, nil
	}
	r.share = float64(r.Events) / float64(due)
	if r.Events == 0 {
		return r, 0, fmt.Errorf("watchers of %s got nothing", s.Name)
	}
	r.each = r.cpu / time.Duration(r.Events)
	return r, rate, nil
}

// watchReport returns the report without its summary.
func watchReport(seconds int, cases []watchCase, found map[string]watchReadings) *harness.Report {
	r := &harness.Report{
		Name: "watch",
		Heading: fmt.Sprintf("Pods of 7.7 KB as JSON; each watcher has a TLS connection of its own with HTTP/2, "+
			"but in nodes 100 share one; %d s each. CPU is what the server takes more with the watchers than "+
			"without, for each change and watcher; "+
			"in nodes, where a change concerns one watcher, for each change.", seconds),
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
