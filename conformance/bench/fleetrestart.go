// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

// dataVariable is the folder with the files of a fleet that is measured.
const dataVariable = "WATERSHED_BENCH_DATA"

// wantedVariable makes that process read the last cluster from its start on, as a client of
// a replica does.
const wantedVariable = "WATERSHED_BENCH_WANTED"

// fleetStart is the start of a process with a fleet, which it has measured of itself.
type fleetStart struct {
	Clusters, Objects int
	// First is when the objects of one cluster could be read, All when those of all could
	// be, and Live when all were current. CPU is until then.
	First, All, Live, CPU time.Duration
	// Wanted is when the objects of the cluster that is read from the start on could be read.
	Wanted time.Duration
	// Lists is how many resources were listed.
	Lists  uint64
	Memory fleetMemoryUse
	// Files is the size of the files at the end of the process.
	Files float64
}

// fleetrestartTrial has the starts of a fleet. Each continues with the files of the one before.
var fleetrestartTrial = harness.Trial[fleetStart]{
	Name:  "fleetrestart",
	Limit: fleetLimit,
	Subjects: []harness.Subject[fleetStart]{
		{Name: "without files", Measure: measureFleetStart, Env: []string{dataVariable + "="}},
		{Name: "without files, written meanwhile", Measure: measureFleetStart},
		{Name: "with files", Measure: measureFleetStart},
		{Name: "read from the start on", Measure: measureFleetStart, Env: []string{wantedVariable + "=1"}},
	},
}

// benchFleetrestart measures a fleet that starts with files, after one that starts without
// and writes them.
func benchFleetrestart(out io.Writer) error {
	pods, sizes, err := fleetSize()
	if err != nil {
		return err
	}
	for _, n := range sizes {
		opts := simulated.Options{Clusters: n, Pods: pods}
		if err := harness.WithFolder(dataVariable, func() error { return restartFleet(out, opts) }); err != nil {
			return err
		}
	}
	return nil
}

// restartFleet measures a fleet of one size.
func restartFleet(out io.Writer, opts simulated.Options) error {
	ctx := context.Background()
	s, err := harness.StartSimulation(ctx, opts)
	if err != nil {
		return err
	}
	defer s.Close()
	starts := map[string]fleetStart{}
	for _, subject := range fleetrestartTrial.Subjects {
		if starts[subject.Name], err = fleetrestartTrial.RunOnce(ctx, subject, fleetVariable+"="+s.Addr); err != nil {
			return err
		}
	}
	without := starts["without files"]
	with := starts["with files"]
	wanted := starts["read from the start on"]
	r := &harness.Report{
		Name:     "fleetrestart",
		Heading:  fmt.Sprintf("%d clusters, %d objects, %.0f MB of files", with.Clusters, with.Objects, with.Files/1e6),
		Columns:  []string{"start"},
		Measures: harness.Fleet,
		Partial:  with.Clusters < wholeFleet[len(wholeFleet)-1],
		Summary: fmt.Sprintf("A cluster that is read from the start on, the last one by name, is readable after %.2f "+
			"s.\n\n"+
			"fleetrestart: first-ms=%.0f wanted-ms=%.0f all-s=%.1f live-s=%.1f lists=%d memory-ratio=%.2f",
			wanted.Wanted.Seconds(), harness.InMilliseconds(with.First), harness.InMilliseconds(wanted.Wanted),
			with.All.Seconds(), with.Live.Seconds(),
			with.Lists, float64(with.Memory.Bytes)/float64(without.Memory.Bytes)),
	}
	type reading = fleetStart
	harness.AddRows(r, fleetrestartTrial.Rows(starts)[:3],
		harness.Col("first cluster readable, s", "%.2f", func(r reading) float64 { return r.First.Seconds() }).
			As("first", "s"),
		harness.Col("all readable, s", "%.1f", func(r reading) float64 { return r.All.Seconds() }).As("all", "s"),
		harness.Col("all current, s", "%.1f", func(r reading) float64 { return r.Live.Seconds() }).As("current", "s"),
		harness.Col("CPU, s", "%.1f", func(r reading) float64 { return r.CPU.Seconds() }).As("cpu", "s"),
		harness.Col("lists", "%.0f", func(r reading) uint64 { return r.Lists }).As("lists", ""),
		harness.Col("bytes per object", "%.0f", func(r reading) int64 {
			return r.Memory.Bytes / int64(max(r.Objects, 1))
		}).As("bytes", "bytes"),
		harness.Col("RSS, MB", "%.0f", func(r reading) int64 { return r.Memory.RSS / 1e6 }).As("rss", "MB"),
	)
	r.Value("with-files.files", with.Files, "bytes")
	r.Value("wanted", wanted.Wanted.Seconds(), "s")
	return r.Write(out)
}

// measureFleetStart mirrors the clusters of a simulation, with the files in a folder if there
// is one, and measures this process until all is current. Then it writes the files.
func measureFleetStart(ctx context.Context) (r fleetStart, err error) {
	debug.SetMemoryLimit(fleetMemory)
	_, clusters, err := dialClusters()
	if err != nil {
		return r, err
	}
	folder := os.Getenv(dataVariable)
	opts := &fleet.Options{Resources: []string{"pods"}, Drop: wire.ManagedFields}
	if os.Getenv(wantedVariable) != "" {
		opts.History = 1 << 20 // so that there are feeds
	}
	before := measureFleetMemory()
	began, used := time.Now(), harness.CPUTime()
	finish := func() error { return nil }
	if folder != "" {
		files, err := harness.OpenFiles(filepath.Join(folder, "data"), nil)
		if err != nil {
			return r, err
		}
		opts.Disk = files.Directory
		finish = func() error {
			awaitSnapshots(files.Directory)
			return files.End()
		}
	}
	f, err := fleet.New(clusters, opts)
	if err != nil {
		return r, err
	}
	go func() { _ = f.Run(ctx) }() // lives as long as the process
	if opts.History > 0 {
		r.awaitWanted(f, clusters[len(clusters)-1].Name, began)
	}
	r.awaitObjects(f, len(clusters), began)
	if err := f.WaitForSync(ctx); err != nil {
		return r, err
	}
	r.Live, r.CPU = time.Since(began), harness.CPUTime()-used
	r.Clusters = len(clusters)
	for _, m := range f.Members() {
		for _, s := range m.Resources() {
			r.Lists += s.Reflector.Lists
		}
	}
	r.Objects = fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "pods"}).Len()
	r.Memory = measureFleetMemory().since(before)
	if err := finish(); err != nil {
		return r, err
	}
	if folder != "" {
		r.Files, err = harness.FolderSize(folder)
	}
	return r, err
}

// awaitObjects waits until the objects of the first cluster, and of all, can be read.
func (r *fleetStart) awaitObjects(f *fleet.Fleet, clusters int, began time.Time) {
	pods := fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "pods"})
	for ; ; time.Sleep(5 * time.Millisecond) {
		readable := 0
		for _, m := range f.Members() {
			if pods.In(m.Name()).Len() > 0 {
				readable++
			}
		}
		if readable > 0 && r.First == 0 {
			r.First = time.Since(began)
		}
		if readable == clusters {
			r.All = time.Since(began)
			return
		}
	}
}

// awaitWanted waits until the objects of a cluster can be read.
func (r *fleetStart) awaitWanted(f *fleet.Fleet, name string, began time.Time) {
	for ; ; time.Sleep(5 * time.Millisecond) {
		m, ok := f.Member(name)
		if !ok {
			continue
		}
		if feed, ok := m.Feed(schema.GroupResource{Resource: "pods"}); ok {
			if _, err := feed.Now(); err == nil {
				r.Wanted = time.Since(began)
				return
			}
		}
	}
}

// awaitSnapshots waits until no snapshot is being written: little is written then, because
// the bookmarks of many watches still arrive.
func awaitSnapshots(d *disk.Directory) {
	for last := d.Stats().Bytes; ; {
		time.Sleep(3 * time.Second)
		now := d.Stats().Bytes
		if now-last < 1<<20 {
			return
		}
		last = now
	}
}
