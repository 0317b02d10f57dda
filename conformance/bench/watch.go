// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	watchPods    = 5000
	watchSeconds = 20
	// watchWarm is how many seconds changes flow before they are counted, watchDrain
	// how long they may be under way.
	watchWarm, watchDrain = 2, time.Second
	// caseVariable names the only case to measure.
	caseVariable = "WATERSHED_CASE"
)

// watchCase is a number of watchers, and how often something changes.
type watchCase struct {
	name           string
	watchers, rate int
	// selector is a label selector that nothing matches; "" is all pods.
	selector string
	// fields is a field selector, for which each change concerns one watcher.
	fields string
	// streams is how many watchers share a connection; 0 is one.
	streams int
	// of is what they watch, for readers.
	of string
}

var watchCases = []watchCase{
	{name: "shared", watchers: 200, rate: 100, of: "all pods"},
	{name: "selective", watchers: 1000, rate: 200, selector: "app=none-%d", of: "other labels"},
	{name: "burst", watchers: 20, rate: 1000, of: "all pods"},
	{name: "nodes", watchers: 5000, rate: 200, fields: "spec.nodeName=node-%d", streams: 100, of: "one node's pods each"},
}

// concerned is how many watchers each change concerns.
func (w *watchCase) concerned() int {
	switch {
	case w.selector != "":
		return 0
	case w.fields != "":
		return 1
	}
	return w.watchers
}

// chosenCases are those to measure.
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

// watchReading is what watchers cost a server.
type watchReading struct {
	// cpu is what the watchers cost, each what one change costs for one watcher.
	cpu, each time.Duration
	// share is how much of what there was to deliver was.
	share float64
	delivered
}

// watchReadings are those of one case.
type watchReadings struct {
	kube, ours, bare watchReading
	// rate is how many changes there were in a second.
	rate float64
}

// watchBench is the servers that are watched.
type watchBench struct {
	kube    *server
	ours    *replica
	bare    *server
	stored  *changes
	frames  *changes
	seconds int
}

// benchWatch measures what watchers cost the servers that they watch.
func benchWatch(out io.Writer) error {
	if done, err := isCompanion(out); done {
		return err
	}
	cases, err := chosenCases()
	if err != nil {
		return err
	}
	n, err := variable(podsVariable, watchPods)
	if err != nil {
		return err
	}
	b := &watchBench{}
	if b.seconds, err = variable(secondsVariable, watchSeconds); err != nil {
		return err
	}
	ctx := context.Background()
	c, _, err := loaded(ctx, n)
	if err != nil {
		return err
	}
	defer c.Close()
	version, err := serverVersion(c.Config())
	if err != nil {
		return err
	}
	b.kube = apiServer(c)
	if b.ours, err = startReplica(ctx, c, "pods"); err != nil {
		return err
	}
	defer b.ours.close()
	bare, companion, err := startBare(ctx, "watch", &b.ours.server)
	if err != nil {
		return err
	}
	defer companion.close()
	b.bare = bare
	if err := b.prepare(c, companion, n); err != nil {
		return err
	}
	found := map[string]watchReadings{}
	for _, w := range cases {
		if found[w.name], err = b.measure(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	r := watchReport(b.seconds, cases, found)
	r.server, r.part = version, isTrial() || len(cases) < len(watchCases)
	if err := r.write(out); err != nil {
		return err
	}
	for _, w := range cases {
		if f := found[w.name]; f.kube.Ended+f.ours.Ended+f.bare.Ended > 0 {
			fmt.Fprintf(out, "\n%s: servers ended watches, and what was missed was sent again: this is what overload costs, not watching\n", w.name)
		}
	}
	fmt.Fprintf(out, "\nwatch: %s\n", watchSummary(found))
	return nil
}

// watchSummary is one line of what was measured.
func watchSummary(found map[string]watchReadings) string {
	var parts []string
	x := func(name string) {
		if f, ok := found[name]; ok {
			parts = append(parts, name+"-ratio="+ratio(f.ours.each, f.kube.each))
		}
	}
	p99 := func(f watchReadings) string {
		return fmt.Sprintf("p99-ms ours=%.1f apiserver=%.1f", f.ours.P99.Seconds()*1e3, f.kube.P99.Seconds()*1e3)
	}
	x("shared")
	shared, ok := found["shared"]
	if ok {
		parts = append(parts, "of-bare="+ratio(shared.ours.each, shared.bare.each))
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

// prepare encodes the pods that change.
func (b *watchBench) prepare(c *kubetest.Cluster, bare *companion, n int) (err error) {
	if b.stored, err = storedChanges(c, n); err != nil {
		return err
	}
	b.frames, err = frameChanges(bare, n)
	return err
}

// measure measures one case with each server. What the changes alone cost it, with
// nobody watching, is not the watchers': it is measured too. The replica's own watch is
// there all the time.
func (b *watchBench) measure(ctx context.Context, w watchCase) (r watchReadings, err error) {
	alone, _, err := b.flow(ctx, b.stored, w, nil, b.kube, &b.ours.server)
	if err != nil {
		return r, err
	}
	if r.kube, r.rate, err = b.watched(ctx, b.stored, w, b.kube, alone[0]); err != nil {
		return r, err
	}
	if r.ours, _, err = b.watched(ctx, b.stored, w, &b.ours.server, alone[1]); err != nil || w.concerned() < w.watchers {
		return r, err // the bare server selects nothing
	}
	r.bare, _, err = b.watched(ctx, b.frames, w, b.bare, 0)
	return r, err
}

// flow makes the changes of a case, and returns what they and their delivery to
// watchers cost each server.
func (b *watchBench) flow(ctx context.Context, c *changes, w watchCase, to *watchers, servers ...*server) (cpu []time.Duration, rate float64, err error) {
	cpu = make([]time.Duration, len(servers))
	for i, s := range servers {
		if cpu[i], err = s.cpu(); err != nil {
			return nil, 0, err
		}
	}
	if rate, err = c.flow(ctx, w.rate*b.seconds, w.rate); err != nil {
		return nil, 0, err
	}
	time.Sleep(watchDrain)
	if due := w.concerned() * w.rate * b.seconds; to != nil && due > 0 {
		if err := to.wait(due); err != nil {
			return nil, 0, err
		}
	}
	for i, s := range servers {
		after, err := s.cpu()
		if err != nil {
			return nil, 0, err
		}
		cpu[i] = after - cpu[i]
	}
	return cpu, rate, nil
}

// watched makes the changes of a case while a server is watched.
func (b *watchBench) watched(ctx context.Context, c *changes, w watchCase, s *server, alone time.Duration) (r watchReading, rate float64, err error) {
	all, err := startWatchers(ctx, watchTask{
		At: s.access(), Watchers: w.watchers, Selector: w.selector, Fields: w.fields, Streams: max(1, w.streams),
	})
	if err != nil {
		return r, 0, err
	}
	defer all.close()
	if _, err := c.flow(ctx, w.rate*watchWarm, w.rate); err != nil {
		return r, 0, err
	}
	time.Sleep(watchDrain)
	if err := all.count(); err != nil {
		return r, 0, err
	}
	wait := func() error { return nil }
	if s == &b.ours.server {
		wait = b.ours.profile("watch-"+w.name, time.Duration(b.seconds)*time.Second)
	}
	cpu, rate, err := b.flow(ctx, c, w, all, s)
	if err := errors.Join(err, wait()); err != nil {
		return r, 0, err
	}
	if r.delivered, err = all.report(); err != nil {
		return r, 0, err
	}
	r.cpu, r.share = max(clockTick, cpu[0]-alone), 1
	due := w.concerned() * w.rate * b.seconds
	if due == 0 {
		if r.Events > 0 || r.Ended > 0 {
			return r, 0, fmt.Errorf("watchers of %s that select nothing got %d events, and %d watches ended", s.name, r.Events, r.Ended)
		}
		r.each = r.cpu / time.Duration(w.watchers*w.rate*b.seconds)
		return r, rate, nil
	}
	r.share = float64(r.Events) / float64(due)
	if r.Events == 0 {
		return r, 0, fmt.Errorf("watchers of %s got nothing", s.name)
	}
	r.each = r.cpu / time.Duration(r.Events)
	return r, rate, nil
}

// watchReport is the table and the figure.
func watchReport(seconds int, cases []watchCase, found map[string]watchReadings) *report {
	r := &report{
		name: "watch",
		heading: fmt.Sprintf("Pods of 7.7 KB as JSON; each watcher has a TLS connection of its own with HTTP/2, but in nodes 100 share one; %d s each. CPU is what the server takes more with the "+
			"watchers than without, for each change and watcher; in nodes, where a change concerns one watcher, for each change.", seconds),
		columns: []string{"watchers", "server", "CPU, us", "delivered", "p50, ms", "p99, ms", "max, ms", "KB", "watches ended"},
		figure: figure{title: "Watching pods", subjects: []bar{
			{"Watershed", oursColour}, {"bare net/http", oursPale}, {"kube-apiserver", clientGoColour},
		}},
	}
	ms := func(d time.Duration) string {
		if d == 0 {
			return "" // nothing was to be delivered
		}
		return fmt.Sprintf("%.1f", d.Seconds()*1e3)
	}
	us := func(d time.Duration) string { return fmt.Sprintf("%.3g", float64(d)/1e3) }
	for _, w := range cases {
		p := panel{title: w.name + ", us"}
		readings := found[w.name]
		for _, s := range []struct {
			name string
			watchReading
		}{{"Watershed", readings.ours}, {"bare net/http", readings.bare}, {"kube-apiserver", readings.kube}} {
			if s.cpu == 0 {
				p.add(0, "not measured")
				continue
			}
			p.add(float64(s.each)/1e3, us(s.each))
			name := fmt.Sprintf("%s: %s of %s, %s changes/s", w.name, thousands(strconv.Itoa(w.watchers)), w.of, thousands(fmt.Sprintf("%.0f", readings.rate)))
			r.row(name, s.name, us(s.each), fmt.Sprintf("%.4g%%", s.share*100),
				ms(s.P50), ms(s.P99), ms(s.Max), fmt.Sprintf("%.1f", float64(s.Bytes)/1e3/float64(max(1, s.Events))), strconv.Itoa(s.Ended))
		}
		r.figure.panels = append(r.figure.panels, p)
	}
	return r
}
