// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

const (
	// clustersVariable has the numbers of clusters to measure. "1,10,100,1000" is the
	// page's, and takes half an hour. Default 100, which takes a minute.
	clustersVariable = "WATERSHED_CLUSTERS"
	// settledVariable makes the benchmark wait until everything is packed densely.
	settledVariable = "WATERSHED_SETTLED"
	// fleetVariable is the address of the simulation, for the process that measures a fleet.
	fleetVariable = "WATERSHED_BENCH_FLEET"
	// idleVariable makes that process mirror all resources, most of which are empty.
	idleVariable = "WATERSHED_BENCH_IDLE"
	// podsPerCluster is the default.
	podsPerCluster = 10_000
	// churnRate is changes per second in the whole fleet.
	churnRate = 10_000
	// fleetMemory limits the process, in bytes: 10 million pods on a machine of 24 GiB
	// that also runs the simulation.
	fleetMemory = 17 << 30
	// fleetLimit is how long the measurement of a fleet may take.
	fleetLimit = 2 * time.Hour
	// fleetApp is the value of the label that is searched for.
	fleetApp = "service-00042"
)

// wholeFleet has the numbers of clusters that the page shows.
var wholeFleet = []int{1, 10, 100, 1000}

// fleetReading is the result that a process with a fleet has measured of itself.
type fleetReading struct {
	Clusters, Objects, Resources int
	// Wall and CPU are until everything has synced.
	Wall, CPU time.Duration
	// Synced is the memory right after that.
	Synced fleetMemoryUse
	// Settled is the memory when everything is packed densely, if the benchmark waits for
	// that.
	Settled    fleetMemoryUse
	Goroutines int
	// Churn is changes per second, ChurnCPU how many processors they take.
	Churn    float64
	ChurnCPU float64
	// Scan is the time to find one label value in all clusters without an index.
	Scan time.Duration
	// Look is the same with an index, which took the time Index to make and IndexBytes.
	Look, Index time.Duration
	IndexBytes  int64
	// Found is how many objects have that value.
	Found int
}

var fleetTrial = harness.Trial[fleetReading]{
	Name:     "fleet",
	Limit:    fleetLimit,
	Subjects: []harness.Subject[fleetReading]{{Name: "ours", Measure: measureFleet}},
}

// benchFleet measures a process that mirrors many clusters.
func benchFleet(out io.Writer) error {
	pods, sizes, err := fleetSize()
	if err != nil {
		return err
	}
	var readings []fleetReading
	for _, n := range sizes {
		r, err := runFleet(simulated.Options{Clusters: n, Pods: pods})
		if err != nil {
			return err
		}
		readings = append(readings, r)
	}
	report := fleetReport(pods, readings)
	report.Partial = len(sizes) < len(wholeFleet)
	if !report.Partial {
		idle, err := runFleet(simulated.Options{Clusters: 10, Pods: 1, Types: 200}, idleVariable+"=1")
		if err != nil {
			return err
		}
		n := float64(idle.Resources)
		report.Heading += fmt.Sprintf(" A watch on which nothing happens costs %.0f KB and %.1f goroutines "+
			"(%s of them, in ten clusters).",
			float64(idle.Synced.Bytes)/n/1e3, float64(idle.Goroutines)/n, harness.Whole(n))
		report.Value("idle.bytes", float64(idle.Synced.Bytes)/n, "bytes")
		report.Value("idle.goroutines", float64(idle.Goroutines)/n, "")
	}
	return report.Write(out)
}

// fleetSize returns the size of a benchmark of fleets: the pods of a cluster, and the numbers
// of clusters.
func fleetSize() (pods int, sizes []int, err error) {
	if pods, err = harness.EnvInt(harness.EnvPods, podsPerCluster); err == nil {
		sizes, err = fleetSizes()
	}
	return pods, sizes, err
}

// fleetSizes returns the numbers of clusters to measure.
func fleetSizes() ([]int, error) {
	text := os.Getenv(clustersVariable)
	if text == "" {
		return []int{100}, nil
	}
	var sizes []int
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", clustersVariable, text, err)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// perObject returns a time in microseconds per object.
func (r fleetReading) perObject(d time.Duration) float64 {
	return d.Seconds() * 1e6 / float64(r.Objects)
}

// perResource returns the goroutines per resource.
func (r fleetReading) perResource() float64 { return float64(r.Goroutines) / float64(r.Resources) }

// runFleet measures a fleet of simulated clusters in a process of its own.
func runFleet(opts simulated.Options, env ...string) (r fleetReading, err error) {
	ctx := context.Background()
	s, err := harness.StartSimulation(ctx, opts)
	if err != nil {
		return r, err
	}
	defer s.Close()
	return fleetTrial.RunOnce(ctx, fleetTrial.Subjects[0], append(env, fleetVariable+"="+s.Addr)...)
}

// fixedDirectory is a directory of clusters that do not change.
type fixedDirectory []fleet.Entry

func (d fixedDirectory) Follow(ctx context.Context, tell func([]fleet.Entry)) error {
	tell(d)
	<-ctx.Done()
	return nil
}

// dialClusters connects to the simulation, and returns its clusters.
func dialClusters() (*harness.SimulationClient, fixedDirectory, error) {
	simulation, err := harness.DialSimulation(os.Getenv(fleetVariable))
	if err != nil {
		return nil, nil, err
	}
	var clusters fixedDirectory
	for _, c := range simulation.Clusters {
		clusters = append(clusters, fleet.Entry{Name: c.Name, Config: c.Config(), Access: c.Host})
	}
	return simulation, clusters, nil
}

// measureFleet mirrors the clusters of a simulation and measures this process.
func measureFleet(ctx context.Context) (r fleetReading, err error) {
	debug.SetMemoryLimit(fleetMemory)
	simulation, clusters, err := dialClusters()
	if err != nil {
		return r, err
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
	before, goroutines := measureFleetMemory(), runtime.NumGoroutine()
	f, err := fleet.New(clusters, opts)
	if err != nil {
		return r, err
	}
	began, used := time.Now(), harness.CPUTime()
	go func() { _ = f.Run(ctx) }() // lives as long as the process
	if err := f.WaitForSync(ctx); err != nil {
		return r, err
	}
	r.Wall, r.CPU = time.Since(began), harness.CPUTime()-used
	pods := fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "pods"})
	r.Objects = pods.Len()
	if err := r.countMembers(f); err != nil {
		return r, err
	}
	r.Synced = measureFleetMemory().since(before)
	r.Goroutines = runtime.NumGoroutine() - goroutines
	if idle {
		return r, nil
	}
	fmt.Fprintf(os.Stderr, "%d clusters, %d objects: synced in %.0f s with %.1f us of CPU for each, %d bytes\n",
		r.Clusters, r.Objects, r.Wall.Seconds(), r.perObject(r.CPU), r.Synced.Bytes/int64(r.Objects))
	if settled {
		r.Settled = settleFleet().since(before)
	}
	if r.Scan, r.Found, err = findApp(pods); err != nil {
		return r, err
	}
	seconds := 5
	if settled {
		seconds = 20 // so that one garbage collection more or less does not matter
	}
	if err := r.churn(simulation, seconds); err != nil {
		return r, err
	}
	r.index(pods)
	return r, nil
}

// countMembers counts clusters and resources. All clusters must be live.
func (r *fleetReading) countMembers(f *fleet.Fleet) error {
	for _, m := range f.Members() {
		s := m.Status()
		if s.State != fleet.Live {
			return fmt.Errorf("%s is %s: %w", m.Name(), s.State, s.Err)
		}
		r.Clusters++
		r.Resources += s.Resources
	}
	return nil
}

// settleFleet waits until the process has nothing left to do. Objects are packed densely
// a minute after they arrived, at the earliest, one cluster after the other.
func settleFleet() fleetMemoryUse {
	for began, calm := time.Now(), 0; calm < 3 || time.Since(began) < 100*time.Second; calm++ {
		used := harness.CPUTime()
		time.Sleep(10 * time.Second)
		if harness.CPUTime()-used > 500*time.Millisecond {
			calm = 0
		}
	}
	return measureFleetMemory()
}

// fleetMemoryUse is the memory of a process, in bytes.
type fleetMemoryUse struct {
	// Bytes is the heap in use with its fragmentation, stacks, and the runtime's own.
	Bytes int64
	RSS   int64
}

// measureFleetMemory collects garbage and returns the memory of this process.
func measureFleetMemory() fleetMemoryUse {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fleetMemoryUse{
		Bytes: int64(m.HeapInuse + m.StackInuse + m.MSpanInuse + m.MCacheInuse + m.GCSys + m.OtherSys),
		RSS:   int64(harness.RSS()),
	}
}

func (m fleetMemoryUse) since(before fleetMemoryUse) fleetMemoryUse {
	return fleetMemoryUse{m.Bytes - before.Bytes, m.RSS - before.RSS}
}

// findApp searches all clusters for the pods of one deployment, three times, and returns
// the best time.
func findApp(pods *fleet.View[*wire.Object]) (best time.Duration, found int, err error) {
	selector, err := labels.Parse("app.kubernetes.io/name=" + fleetApp)
	if err != nil {
		return 0, 0, err
	}
	for range 3 {
		began := time.Now()
		found = 0
		for range pods.Snapshot().Select("", selector) {
			found++
		}
		if d := time.Since(began); best == 0 || d < best {
			best = d
		}
	}
	return best, found, nil
}

// churn measures the processor time while pods of all clusters change.
func (r *fleetReading) churn(simulation *harness.SimulationClient, seconds int) error {
	seconds, err := harness.EnvInt(harness.EnvSeconds, seconds)
	if err != nil {
		return err
	}
	if _, err := simulation.Churn(churnRate, 2); err != nil { // warm-up
		return err
	}
	began, used := time.Now(), harness.CPUTime()
	n, err := simulation.Churn(churnRate, seconds)
	if err != nil {
		return err
	}
	r.ChurnCPU = (harness.CPUTime() - used).Seconds() / time.Since(began).Seconds()
	r.Churn = float64(n) / time.Since(began).Seconds()
	return nil
}

// index measures the same search with an index.
func (r *fleetReading) index(pods *fleet.View[*wire.Object]) {
	before := measureFleetMemory()
	began := time.Now()
	byApp := fleet.IndexBy(pods, func(o *wire.Object) []string {
		app, _ := o.Label("app.kubernetes.io/name")
		return []string{app}
	})
	r.Index = time.Since(began)
	r.IndexBytes = measureFleetMemory().since(before).Bytes
	for range 3 {
		began := time.Now()
		for range byApp.Get(fleetApp) {
			continue
		}
		if d := time.Since(began); r.Look == 0 || d < r.Look {
			r.Look = d
		}
	}
}

// fleetReport returns the report.
func fleetReport(pods int, readings []fleetReading) *harness.Report {
	last := readings[len(readings)-1]
	bytes := last.Synced.Bytes
	if last.Settled.Bytes > 0 {
		bytes = last.Settled.Bytes
	}
	r := &harness.Report{
		Name: "fleet",
		Heading: fmt.Sprintf("%s pods in each of so many simulated clusters, managed fields dropped, "+
			"everything else kept and packed; one process of %d GiB at most, one run each.",
			harness.Whole(float64(pods)), fleetMemory>>30),
		Columns:  []string{"clusters"},
		Measures: harness.Fleet,
		Figure:   harness.Figure{Title: "Growth of a fleet: flat is linear"},
		Summary: fmt.Sprintf("fleet: clusters=%d objects=%d bytes/object=%.0f "+
			"goroutines/resource=%.2f sync-cpu-us/object=%.1f",
			last.Clusters, last.Objects, float64(bytes)/float64(last.Objects), last.perResource(),
			last.perObject(last.CPU)),
	}
	type reading = fleetReading
	var rows []harness.Row[reading]
	for _, x := range readings {
		clusters := harness.Whole(float64(x.Clusters))
		label := clusters + " clusters"
		if x.Clusters == 1 {
			label = "1 cluster"
		}
		bar := harness.Bar{Name: label, Colour: harness.ColourOurs}
		rows = append(rows, harness.Row[reading]{
			Bar: bar, Cells: []string{clusters}, Key: strconv.Itoa(x.Clusters), Reading: x,
		})
	}
	ofObject := func(r reading, x int64) float64 { return float64(x) / float64(r.Objects) }
	harness.AddRows(r, rows,
		harness.Col("objects", harness.Grouped, func(r reading) int { return r.Objects }).As("objects", ""),
		harness.Col("bytes per object, synced", harness.Grouped,
			func(r reading) float64 { return ofObject(r, r.Synced.Bytes) }, "bytes per object, just synced").
			As("synced", "bytes"),
		harness.Col("settled", harness.Grouped, func(r reading) float64 {
			if r.Settled.Bytes == 0 {
				return math.NaN()
			}
			return ofObject(r, r.Settled.Bytes)
		}).As("settled", "bytes"),
		harness.Col("RSS, GB", "%.2f", func(r reading) float64 {
			if r.Settled.Bytes > 0 {
				return float64(r.Settled.RSS) / 1e9
			}
			return float64(r.Synced.RSS) / 1e9
		}).As("rss", "GB"),
		harness.Col("sync, s", "%.1f", func(r reading) float64 { return r.Wall.Seconds() }).As("sync", "s"),
		harness.Col("CPU, us per object", "%.1f", func(r reading) float64 { return r.perObject(r.CPU) },
			"sync, us of CPU per object").As("cpu", "us"),
		harness.Col("goroutines per resource", "%.2f", reading.perResource).As("goroutines", ""),
		harness.Col("CPU at 10,000 changes/s", "%.2f", func(r reading) float64 { return r.ChurnCPU },
			"CPU at 10,000 changes/s").As("changes-cpu", "cores"),
		harness.Ms("find a label value, ms", "%.1f", func(r reading) time.Duration { return r.Scan }).As("scan", "ms"),
		harness.Ms("with an index, ms", "%.2f", func(r reading) time.Duration { return r.Look }).As("index", "ms"),
	)
	r.Figure.Panels = append(r.Figure.Panels, scanPanel(readings))
	return r
}

// scanPanel returns the panel of searches, which are in the table as milliseconds of all objects.
func scanPanel(readings []fleetReading) harness.Panel {
	p := harness.Panel{Title: "label search, ns per object"}
	for _, x := range readings {
		each := float64(x.Scan.Nanoseconds()) / float64(x.Objects)
		p.Add(each, fmt.Sprintf("%.0f", each))
	}
	return p
}
