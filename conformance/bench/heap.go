// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
)

const (
	// calm is how long the heap must not have shrunk by a hundredth to be settled,
	// patience is when that is given up.
	calm, patience = 15 * time.Second, 150 * time.Second
	// repacking is when at the earliest a packed informer has packed again, and
	// more densely, what has not changed since.
	repacking = 80 * time.Second
)

// footprint is the memory of a process, less what it had before the subject.
type footprint struct {
	// Heap is bytes, Objects how many pieces they are in, after a collection.
	Heap, Objects int64
	// RSS is what the system says the process has, now and at most.
	RSS, MaxRSS uint64
}

// heapReading is what a process finds of itself, right after the sync and when
// nothing moves any more.
type heapReading struct{ Synced, Settled footprint }

var heapTrial = trial[heapReading]{
	name: "heap",
	subjects: []subject[heapReading]{
		{name: "ours packed", runs: 3, measure: reader(readPacked).footprints(repacking)},
		{name: "ours fast", runs: 3, measure: reader(readTyped).footprints(0)},
		{name: "client-go", runs: 3, measure: reader(readClientGo).footprints(0)},
		{name: "dynamic", runs: 1, measure: reader(readDynamic).footprints(0)},
	},
	order: func(r heapReading) float64 { return float64(r.Settled.Heap) },
}

// benchHeap measures what 30,000 pods from a real API server cost in memory.
func benchHeap(out io.Writer) error {
	if done, err := heapTrial.isSubject(out); done {
		return err
	}
	n, err := variable(podsVariable, 30_000)
	if err != nil {
		return err
	}
	ctx := context.Background()
	c, env, err := loaded(ctx, n)
	if err != nil {
		return err
	}
	defer c.Close()
	version, err := serverVersion(c.Config())
	if err != nil {
		return err
	}
	median, err := heapTrial.run(ctx, env...)
	if err != nil {
		return err
	}
	r := &report{
		name:    "heap",
		heading: fmt.Sprintf("%s pods from kube-apiserver, everything kept, each reader in a process of its own; %s, of dynamic one.", thousands(strconv.Itoa(n)), heapTrial.repeated()),
		columns: []string{"reader", "bytes per pod", "heap objects per pod", "live heap, MB", "RSS, MB", "max RSS, MB"},
		figure:  figure{title: fmt.Sprintf("Memory of %s pods", thousands(strconv.Itoa(n)))},
		server:  version,
	}
	bytes, objects, rss := panel{title: "live heap, bytes per pod"}, panel{title: "heap objects per pod"}, panel{title: "RSS, MB"}
	add := func(b bar, f footprint) {
		perPod, pieces := float64(f.Heap)/float64(n), float64(f.Objects)/float64(n)
		r.row(b.name, thousands(fmt.Sprintf("%.0f", perPod)), fmt.Sprintf("%.1f", pieces), megabytes(float64(f.Heap)), megabytes(float64(f.RSS)), megabytes(float64(f.MaxRSS)))
		r.figure.subjects = append(r.figure.subjects, b)
		bytes.add(perPod, thousands(fmt.Sprintf("%.0f", perPod)))
		objects.add(pieces, fmt.Sprintf("%.1f", pieces))
		rss.add(float64(f.RSS)/1e6, thousands(megabytes(float64(f.RSS))))
	}
	packed := median["ours packed"]
	add(bar{"Watershed, packed, settled", oursColour}, packed.Settled)
	add(bar{"Watershed, packed, just synced", oursColour}, packed.Synced)
	add(bar{"Watershed, fast", oursPale}, median["ours fast"].Settled)
	add(bar{"client-go, typed", clientGoColour}, median["client-go"].Settled)
	add(bar{"client-go, dynamic", otherColour}, median["dynamic"].Settled)
	r.figure.panels = []panel{bytes, objects, rss}
	if err := r.write(out); err != nil {
		return err
	}
	perPod := func(name string) float64 { return float64(median[name].Settled.Heap) / float64(n) }
	ours, theirs, dynamic := perPod("ours packed"), perPod("client-go"), perPod("dynamic")
	fmt.Fprintf(out, "\nheap: bytes/object ours=%.0f client-go=%.0f dynamic=%.0f vs-client-go=%.2f vs-dynamic=%.2f\n",
		ours, theirs, dynamic, theirs/ours, dynamic/ours)
	return nil
}

func (p *panel) add(value float64, label string) {
	p.values, p.labels = append(p.values, value), append(p.labels, label)
}

func readPacked(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	return readOurs(ctx, cfg, n, &watershed.Options[*corev1.Pod]{Memory: watershed.Packed})
}

// footprints reads once and measures what that left in memory. It waits for the
// least time, and then until nothing moves any more.
func (read reader) footprints(least time.Duration) func(context.Context) (heapReading, error) {
	return func(ctx context.Context) (heapReading, error) {
		cfg, n, err := given()
		if err != nil {
			return heapReading{}, err
		}
		before := measureFootprint()
		kept, err := read(ctx, cfg, n)
		if err != nil {
			return heapReading{}, err
		}
		synced := measureFootprint()
		settled := settle(least)
		runtime.KeepAlive(kept)
		return heapReading{Synced: synced.since(before), Settled: settled.since(before)}, nil
	}
}

// settle waits for the least time and until the heap has ceased to shrink.
func settle(least time.Duration) footprint {
	began := time.Now()
	now := measureFootprint()
	lowest, since := now.Heap, began
	for time.Since(began) < patience && (time.Since(began) < least || time.Since(since) < calm) {
		time.Sleep(3 * time.Second)
		if now = measureFootprint(); now.Heap < lowest-lowest/100 {
			lowest, since = now.Heap, time.Now()
		}
	}
	return now
}

// measureFootprint collects garbage first: twice, since what was weakly held or has a
// finalizer goes with the second collection.
func measureFootprint() footprint {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{Heap: int64(m.HeapAlloc), Objects: int64(m.HeapObjects), RSS: rss(), MaxRSS: maxRSS()}
}

// since is what came to the heap; what the system counts is the whole process's.
func (f footprint) since(before footprint) footprint {
	f.Heap -= before.Heap
	f.Objects -= before.Objects
	return f
}

// rss is the memory that the process has now, 0 where /proc does not say.
func rss() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
