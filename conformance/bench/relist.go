// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/kube"
)

// relistReading is the effect of a relist of the same objects on a process.
type relistReading struct {
	// Steady is the live heap before, Peak the largest during the relist.
	Steady, Peak uint64
	// Updates is how often the handler was called for a change.
	Updates int64
	// Took is the time of the relist. Measuring the heap all the time makes it longer.
	Took time.Duration
}

func (r relistReading) ratio() float64 { return float64(r.Peak) / float64(r.Steady) }

// relister starts an informer with a handler that counts updates, and returns when it
// has synced. progress returns how many complete states the informer has read, and
// whether it has nothing left to do.
type relister func(ctx context.Context, cfg *rest.Config,
	updates *atomic.Int64) (progress func() (states int64, idle bool), err error)

var relistTrial = harness.Trial[relistReading]{
	Name: "relist",
	Subjects: []harness.Subject[relistReading]{
		{
			Name: "ours packed", Bar: harness.Bar{Name: "Watershed, packed", Colour: harness.ColourOurs},
			Runs: 3, Measure: measureRelist(relistOurs(watershed.Packed), harness.RepackTime),
		},
		{
			Name: "ours fast", Bar: harness.Bar{Name: "Watershed, fast", Colour: harness.ColourOursPale},
			Runs: 3, Measure: measureRelist(relistOurs(watershed.Fast), 0),
		},
		{
			Name: "client-go", Bar: harness.Bar{Name: "client-go, streamed (default)", Colour: harness.ColourClientGo},
			Runs: 3, Measure: measureRelist(relistClientGo, 0),
		},
		{
			Name: "client-go list", Bar: harness.Bar{Name: "client-go, listed", Colour: harness.ColourOther},
			Runs: 3, Env: []string{"KUBE_FEATURE_WatchListClient=false"}, Measure: measureRelist(relistClientGo, 0),
		},
	},
	Order: relistReading.ratio,
}

// benchRelist measures the memory that a relist of 30,000 pods takes if none of them
// has changed.
func benchRelist(out io.Writer) error { return relistTrial.RunWithPods(out, 30_000, relistReport) }

// relistReport returns the report.
func relistReport(c *harness.Cluster, median map[string]relistReading) *harness.Report {
	pods := harness.Whole(float64(c.Pods))
	ours, theirs := median["ours packed"], median["client-go"]
	r := &harness.Report{
		Heading: fmt.Sprintf("%s pods, one handler; the watch expires, everything is read again, nothing has changed. "+
			"Live heap as collections find it, one after the other while it lasts; %s.", pods,
			relistTrial.Repetitions()),
		Columns:  []string{"reader"},
		Measures: harness.Informer,
		Figure:   harness.Figure{Title: fmt.Sprintf("A relist of %s pods that have not changed", pods)},
		Summary: fmt.Sprintf("relist: peak ours=%.2f client-go=%.2f updates ours=%d client-go=%d",
			ours.ratio(), theirs.ratio(), ours.Updates, theirs.Updates),
	}
	type reading = relistReading
	harness.AddRows(r, relistTrial.Rows(median),
		harness.Col("steady live heap, MB", harness.MB, func(r reading) uint64 { return r.Steady }).
			As("steady", "bytes"),
		harness.Col("peak, MB", harness.MB, func(r reading) uint64 { return r.Peak }, "peak live heap, MB").
			As("peak", "bytes"),
		harness.Col("more, MB", harness.MB, func(r reading) float64 { return float64(r.Peak) - float64(r.Steady) }),
		harness.Col("peak / steady", "%.2f", reading.ratio, "peak / steady").As("ratio", ""),
		harness.Col("calls of Update", harness.Grouped, func(r reading) int64 { return r.Updates }, "calls of Update").
			As("updates", ""),
	)
	return r
}

// measureRelist returns the measurement of an informer in this process. It waits at
// least for the given time, until the heap has stopped shrinking, and then makes the
// informer read everything again.
func measureRelist(start relister, least time.Duration) func(context.Context) (relistReading, error) {
	return harness.OfCluster(func(ctx context.Context, cfg *rest.Config, _ int) (relistReading, error) {
		var r relistReading
		var e harness.Expiry
		var updates atomic.Int64
		progress, err := start(ctx, e.Wrap(cfg), &updates)
		if err != nil {
			return r, err
		}
		harness.Settle(least)
		r.Steady = harness.LiveHeap()
		before, _ := progress()
		earlier := updates.Load()
		began := time.Now()
		e.Expire()
		if r.Peak, err = peakUntil(ctx, func() bool {
			states, idle := progress()
			if states > before && r.Took == 0 {
				r.Took = time.Since(began)
			}
			return states > before && idle
		}); err != nil {
			states, idle := progress()
			return r, fmt.Errorf("%w: %d states before, %d now, idle %v", err, before, states, idle)
		}
		r.Updates = updates.Load() - earlier
		return r, nil
	})
}

// peakUntil returns the largest live heap until over has returned true for 3 s. The
// informer may go on after over first returns true, in its next stage.
func peakUntil(ctx context.Context, over func() bool) (uint64, error) {
	const (
		pause = 20 * time.Millisecond
		after = 3 * time.Second
	)
	var peak uint64
	var since time.Time // when over first returned true
	for {
		peak = max(peak, harness.LiveHeap())
		switch {
		case !over():
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > after:
			return peak, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// relistOurs returns the relister of our informer.
func relistOurs(memory watershed.Memory) relister {
	return func(ctx context.Context, cfg *rest.Config, updates *atomic.Int64) (func() (int64, bool), error) {
		cluster, err := kube.FromConfig(cfg, nil)
		if err != nil {
			return nil, err
		}
		i, err := watershed.New(cluster, &watershed.Options[*corev1.Pod]{Memory: memory})
		if err != nil {
			return nil, err
		}
		reg := i.Handle(watershed.Handler[*corev1.Pod]{
			Add:    func(p *corev1.Pod, _ bool) { checkNamed(p) },
			Update: func(_, p *corev1.Pod) { checkNamed(p); updates.Add(1) },
			Delete: func(p *corev1.Pod, _ bool) { checkNamed(p) },
		})
		go func() { _ = i.Run(ctx) }() // lives as long as the process
		select {
		case <-reg.Synced():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return func() (int64, bool) {
			s := i.Status()
			return int64(s.Reflector.Lists), s.Queued == 0 && s.Handlers[0].Behind == 0
		}, nil
	}
}

// relistClientGo is the relister of client-go's informer.
func relistClientGo(ctx context.Context, cfg *rest.Config, updates *atomic.Int64) (func() (int64, bool), error) {
	f, i, err := harness.PodInformer(cfg)
	if err != nil {
		return nil, err
	}
	reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(p any) { checkNamed(p.(*corev1.Pod)) },
		UpdateFunc: func(_, p any) { checkNamed(p.(*corev1.Pod)); updates.Add(1) },
		DeleteFunc: func(any) {},
	})
	if err != nil {
		return nil, err
	}
	f.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return nil, context.Cause(ctx)
	}
	// client-go does not report what it has read or queued. A relist has been stored when
	// a pod of the store is another value, and the informer is idle when nothing was
	// delivered between two calls of progress.
	key := i.GetStore().ListKeys()[0]
	pod, _, err := i.GetStore().GetByKey(key)
	if err != nil {
		return nil, err
	}
	var states, delivered int64
	return func() (int64, bool) {
		if now, _, _ := i.GetStore().GetByKey(key); now != pod {
			pod, states = now, states+1
		}
		before := delivered
		delivered = updates.Load()
		return states, before == delivered
	}, nil
}

// checkNamed reads a pod as a handler would.
func checkNamed(p *corev1.Pod) {
	if p.Name == "" {
		panic("a pod without a name")
	}
}
