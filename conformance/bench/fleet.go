// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

const (
	// clustersVariable are the numbers of clusters to measure: "1,10,100,1000" is the
	// page's, and takes half an hour. Default 100, which is done in a minute.
	clustersVariable = "WATERSHED_CLUSTERS"
	// fleetVariable makes the command measure one fleet and nothing else: where its
	// clusters take orders.
	fleetVariable = "WATERSHED_BENCH_FLEET"
	// idleVariable makes it mirror everything, of which there is hardly anything.
	idleVariable = "WATERSHED_BENCH_IDLE"
	// settledVariable makes it wait until everything is packed densely.
	settledVariable = "WATERSHED_SETTLED"
	// podsPerCluster is the default.
	podsPerCluster = 10_000
	// churnRate is changes per second in the whole fleet.
	churnRate = 10_000
	// fleetMemory is what the process may have, for 10 million pods on a machine of
	// 24 GiB that has the simulated clusters too.
	fleetMemory = 17 << 30
)

// wholeFleet is what the page shows.
var wholeFleet = []int{1, 10, 100, 1000}

// fleetReading is what a process with a fleet finds of itself.
type fleetReading struct {
	Clusters, Objects, Resources int
	// Wall and CPU are until everything has synced.
	Wall, CPU time.Duration
	// Synced is right after that, Settled when everything is packed densely, if that
	// was waited for. Bytes are the heap in use and the stacks, RSS the system's
	// count.
	Synced, Settled holding
	Goroutines      int
	// ChurnCPU is the part of a processor at Churn changes per second.
	Churn    float64
	ChurnCPU float64
	// Scan and Look find one label value everywhere, without and with an index,
	// which took Index to make and IndexBytes.
	Scan, Look, Index time.Duration
	IndexBytes        int64
	Found             int
}

type holding struct{ Bytes, RSS int64 }

// benchFleet measures a process that mirrors many clusters.
func benchFleet(out io.Writer) error {
	if done, err := isHerd(out); done {
		return err
	}
	if addr := os.Getenv(fleetVariable); addr != "" {
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
		r, err := measureFleet(addr)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(r)
	}
	pods, err := variable(podsVariable, podsPerCluster)
	if err != nil {
		return err
	}
	sizes := []int{100}
	if text := os.Getenv(clustersVariable); text != "" {
		sizes = nil
		for _, part := range strings.Split(text, ",") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return fmt.Errorf("%s=%s: %w", clustersVariable, text, err)
			}
			sizes = append(sizes, n)
		}
	}
	var readings []fleetReading
	for _, n := range sizes {
		r, err := fleetOnce(simulated.Options{Clusters: n, Pods: pods})
		if err != nil {
			return err
		}
		readings = append(readings, r)
	}
	found := fleetReport(pods, readings)
	if found.part = len(sizes) < len(wholeFleet); !found.part {
		idle, err := fleetOnce(simulated.Options{Clusters: 10, Pods: 1, Types: 200}, idleVariable+"=1")
		if err != nil {
			return err
		}
		found.heading += fmt.Sprintf(" A watch on which nothing happens costs %.0f KB and %.1f goroutines (%s of them, in ten clusters).",
			float64(idle.Synced.Bytes)/float64(idle.Resources)/1e3, float64(idle.Goroutines)/float64(idle.Resources), thousands(strconv.Itoa(idle.Resources)))
	}
	if err := found.write(out); err != nil {
		return err
	}
	last := readings[len(readings)-1]
	bytes := last.Synced.Bytes
	if last.Settled.Bytes > 0 {
		bytes = last.Settled.Bytes
	}
	fmt.Fprintf(out, "\nfleet: clusters=%d objects=%d bytes/object=%.0f goroutines/resource=%.2f sync-cpu-us/object=%.1f\n",
		last.Clusters, last.Objects, float64(bytes)/float64(last.Objects), float64(last.Goroutines)/float64(last.Resources), last.perObject(last.CPU))
	return nil
}

// perObject is a time in microseconds for each object.
func (r *fleetReading) perObject(d time.Duration) float64 {
	return d.Seconds() * 1e6 / float64(r.Objects)
}

// fleetOnce measures a fleet of some clusters, in a process of its own.
func fleetOnce(opts simulated.Options, env ...string) (fleetReading, error) {
	var r fleetReading
	ctx := context.Background()
	h, err := startHerd(ctx, opts)
	if err != nil {
		return r, err
	}
	defer h.close()
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, self, "fleet")
	cmd.Env = slices.Concat(os.Environ(), env, []string{fleetVariable + "=" + h.addr})
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return r, err
	}
	_, last, _ := bytes.Cut(text, []byte("\n")) // after the heading
	return r, json.Unmarshal(last, &r)
}

// register is a directory of clusters that do not change.
type register []fleet.Entry

func (r register) Follow(ctx context.Context, tell func([]fleet.Entry)) error {
	tell(r)
	<-ctx.Done()
	return nil
}

// measureFleet mirrors the clusters of a herd.
func measureFleet(addr string) (fleetReading, error) {
	var r fleetReading
	debug.SetMemoryLimit(fleetMemory)
	lead, err := takeReins(addr)
	if err != nil {
		return r, err
	}
	var clusters register
	for _, p := range lead.pastures {
		clusters = append(clusters, fleet.Entry{Name: p.Name, Config: p.config(), Access: p.Host})
	}
	settled := os.Getenv(settledVariable) != ""
	opts := &fleet.Options{Resources: []string{"pods"}, Drop: wire.ManagedFields}
	if settled {
		opts.Settling = 1
	}
	idle := os.Getenv(idleVariable) != ""
	if idle {
		opts.Resources = []string{"*"}
	}
	before, goroutines := measureHolding(), runtime.NumGoroutine()
	f, err := fleet.New(clusters, opts)
	if err != nil {
		return r, err
	}
	ctx := context.Background()
	began, used := time.Now(), cpuTime()
	go func() { _ = f.Run(ctx) }() // lives as long as the process
	if err := f.WaitForSync(ctx); err != nil {
		return r, err
	}
	r.Wall, r.CPU = time.Since(began), cpuTime()-used
	pods := fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "pods"})
	r.Objects = pods.Len()
	for _, m := range f.Members() {
		s := m.Status()
		if s.State != fleet.Live {
			return r, fmt.Errorf("%s is %s: %w", m.Name(), s.State, s.Err)
		}
		r.Clusters++
		r.Resources += s.Resources
	}
	r.Synced = measureHolding().since(before)
	r.Goroutines = runtime.NumGoroutine() - goroutines
	if idle {
		return r, nil
	}
	fmt.Fprintf(os.Stderr, "%d clusters, %d objects: synced in %.0f s with %.1f us of CPU for each, %d bytes\n",
		r.Clusters, r.Objects, r.Wall.Seconds(), r.perObject(r.CPU), r.Synced.Bytes/int64(r.Objects))
	if settled {
		r.Settled = settleFleet().since(before)
	}
	if r.Scan, r.Found, err = find(pods); err != nil {
		return r, err
	}
	seconds := 5
	if settled {
		seconds = 20 // a collection more or less counts for less
	}
	if err := r.churn(lead, seconds); err != nil {
		return r, err
	}
	r.index(pods)
	return r, nil
}

// settleFleet waits until nothing is left to do: objects settle a minute after they
// came, at the earliest, one cluster after the other.
func settleFleet() holding {
	for began, calm := time.Now(), 0; calm < 3 || time.Since(began) < 100*time.Second; calm++ {
		used := cpuTime()
		time.Sleep(10 * time.Second)
		if cpuTime()-used > 500*time.Millisecond {
			calm = 0
		}
	}
	return measureHolding()
}

// measureHolding is what the process needs after a collection: the heap with what is
// lost between objects, stacks, and the collector's own.
func measureHolding() holding {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return holding{
		Bytes: int64(m.HeapInuse + m.StackInuse + m.MSpanInuse + m.MCacheInuse + m.GCSys + m.OtherSys),
		RSS:   int64(rss()),
	}
}

func (h holding) since(before holding) holding {
	return holding{h.Bytes - before.Bytes, h.RSS - before.RSS}
}

// find looks for the pods of one deployment in all clusters, three times, and
// returns the best.
func find(pods *fleet.View[*wire.Object]) (best time.Duration, found int, err error) {
	selector, err := labels.Parse("app.kubernetes.io/name=" + oneApp)
	if err != nil {
		return 0, 0, err
	}
	for range 3 {
		began := time.Now()
		found = 0
		for range pods.Snapshot().Matching(selector) {
			found++
		}
		if d := time.Since(began); best == 0 || d < best {
			best = d
		}
	}
	return best, found, nil
}

const oneApp = "service-00042"

// churn measures the processor while pods change everywhere.
func (r *fleetReading) churn(lead *reins, seconds int) error {
	seconds, err := variable(secondsVariable, seconds)
	if err != nil {
		return err
	}
	if _, err := lead.churn(churnRate, 2); err != nil { // to begin with
		return err
	}
	began, used := time.Now(), cpuTime()
	n, err := lead.churn(churnRate, seconds)
	if err != nil {
		return err
	}
	r.ChurnCPU = (cpuTime() - used).Seconds() / time.Since(began).Seconds()
	r.Churn = float64(n) / time.Since(began).Seconds()
	return nil
}

// index measures the same search with an index.
func (r *fleetReading) index(pods *fleet.View[*wire.Object]) {
	before := measureHolding()
	began := time.Now()
	byApp := fleet.IndexBy(pods, func(o *wire.Object) []string {
		app, _ := o.Label("app.kubernetes.io/name")
		return []string{app}
	})
	r.Index = time.Since(began)
	r.IndexBytes = measureHolding().since(before).Bytes
	for range 3 {
		began := time.Now()
		for range byApp.Get(oneApp) {
			continue
		}
		if d := time.Since(began); r.Look == 0 || d < r.Look {
			r.Look = d
		}
	}
}

// fleetReport is the table and the figure.
func fleetReport(pods int, readings []fleetReading) *report {
	r := &report{
		name: "fleet",
		heading: fmt.Sprintf("%s pods in each of so many simulated clusters, managed fields dropped, everything else kept and packed; one process of %d GiB at most, one run each.",
			thousands(strconv.Itoa(pods)), fleetMemory>>30),
		columns: []string{"clusters", "objects", "bytes per object, synced", "settled", "RSS, GB", "sync, s", "CPU, us per object", "goroutines per resource",
			"CPU at 10,000 changes/s", "find a label value, ms", "with an index, ms"},
		figure: figure{title: "Growth of a fleet: flat is linear"},
	}
	panels := []panel{{title: "bytes per object, just synced"}, {title: "sync, us of CPU per object"}, {title: "CPU at 10,000 changes/s"}, {title: "label search, ns per object"}}
	for _, x := range readings {
		n := float64(x.Objects)
		bytes := float64(x.Synced.Bytes) / n
		settled, resident := "", x.Synced.RSS
		if x.Settled.Bytes > 0 {
			settled, resident = thousands(fmt.Sprintf("%.0f", float64(x.Settled.Bytes)/n)), x.Settled.RSS
		}
		name := thousands(strconv.Itoa(x.Clusters))
		r.row(name, thousands(strconv.Itoa(x.Objects)), thousands(fmt.Sprintf("%.0f", bytes)), settled, fmt.Sprintf("%.2f", float64(resident)/1e9),
			fmt.Sprintf("%.1f", x.Wall.Seconds()), fmt.Sprintf("%.1f", x.perObject(x.CPU)), fmt.Sprintf("%.2f", float64(x.Goroutines)/float64(x.Resources)),
			fmt.Sprintf("%.2f", x.ChurnCPU), fmt.Sprintf("%.1f", x.Scan.Seconds()*1e3), fmt.Sprintf("%.2f", x.Look.Seconds()*1e3))
		label := name + " clusters"
		if x.Clusters == 1 {
			label = "1 cluster"
		}
		r.figure.subjects = append(r.figure.subjects, bar{label, oursColour})
		scan := x.Scan.Seconds() * 1e9 / n
		panels[0].add(bytes, thousands(fmt.Sprintf("%.0f", bytes)))
		panels[1].add(x.perObject(x.CPU), fmt.Sprintf("%.1f", x.perObject(x.CPU)))
		panels[2].add(x.ChurnCPU, fmt.Sprintf("%.2f", x.ChurnCPU))
		panels[3].add(scan, fmt.Sprintf("%.0f", scan))
	}
	r.figure.panels = panels
	return r
}
