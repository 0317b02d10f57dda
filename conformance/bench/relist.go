// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
)

// relistReading is what a relist of the same objects does to a process.
type relistReading struct {
	// Steady is the live heap before, Peak the most during the relist.
	Steady, Peak uint64
	// Updates is how often the handler was told of a change.
	Updates int64
	// Took is slower than it would be: the heap is looked at all the time.
	Took time.Duration
}

func (r relistReading) ratio() float64 { return float64(r.Peak) / float64(r.Steady) }

// follower is a side of the comparison: an informer with a handler that counts. It
// returns when that has synced, with a function that says how many complete states
// the informer has been through and whether it has nothing left to do.
type follower func(ctx context.Context, cfg *rest.Config, updates *atomic.Int64) (progress func() (states int64, idle bool), err error)

var relistTrial = trial[relistReading]{
	name: "relist",
	subjects: []subject[relistReading]{
		{name: "ours packed", runs: 3, measure: followOurs(watershed.Packed).relist(repacking)},
		{name: "ours fast", runs: 3, measure: followOurs(watershed.Fast).relist(0)},
		{name: "client-go", runs: 3, measure: follower(followClientGo).relist(0)},
		{name: "client-go list", runs: 3, env: []string{"KUBE_FEATURE_WatchListClient=false"}, measure: follower(followClientGo).relist(0)},
	},
	order: relistReading.ratio,
}

// benchRelist measures what it costs to read 30,000 pods again of which none has
// changed.
func benchRelist(out io.Writer) error {
	if done, err := relistTrial.isSubject(out); done {
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
	median, err := relistTrial.run(ctx, env...)
	if err != nil {
		return err
	}
	r := &report{
		name: "relist",
		heading: fmt.Sprintf("%s pods, one handler; the watch expires, everything is read again, nothing has changed. Live heap as collections find it, "+
			"one after the other while it lasts; %s.", thousands(strconv.Itoa(n)), relistTrial.repeated()),
		columns: []string{"reader", "steady live heap, MB", "peak, MB", "more, MB", "peak / steady", "calls of Update"},
		figure:  figure{title: fmt.Sprintf("A relist of %s pods that have not changed", thousands(strconv.Itoa(n)))},
		server:  version,
	}
	peak, ratio, updates := panel{title: "peak live heap, MB"}, panel{title: "peak / steady"}, panel{title: "calls of Update"}
	for _, s := range []struct {
		name string
		bar  bar
	}{
		{"ours packed", bar{"Watershed, packed", oursColour}},
		{"ours fast", bar{"Watershed, fast", oursPale}},
		{"client-go", bar{"client-go, streamed (default)", clientGoColour}},
		{"client-go list", bar{"client-go, listed", otherColour}},
	} {
		m := median[s.name]
		calls := thousands(strconv.FormatInt(m.Updates, 10))
		r.row(s.bar.name, megabytes(float64(m.Steady)), megabytes(float64(m.Peak)), megabytes(float64(m.Peak)-float64(m.Steady)),
			fmt.Sprintf("%.2f", m.ratio()), calls)
		r.figure.subjects = append(r.figure.subjects, s.bar)
		peak.add(float64(m.Peak)/1e6, thousands(megabytes(float64(m.Peak))))
		ratio.add(m.ratio(), fmt.Sprintf("%.2f", m.ratio()))
		updates.add(float64(m.Updates), calls)
	}
	r.figure.panels = []panel{peak, ratio, updates}
	if err := r.write(out); err != nil {
		return err
	}
	ours, theirs := median["ours packed"], median["client-go"]
	fmt.Fprintf(out, "\nrelist: peak ours=%.2f client-go=%.2f updates ours=%d client-go=%d\n", ours.ratio(), theirs.ratio(), ours.Updates, theirs.Updates)
	return nil
}

// relist waits until nothing moves, at least for a time, and then makes the informer
// read everything again.
func (follow follower) relist(least time.Duration) func(context.Context) (relistReading, error) {
	return func(ctx context.Context) (relistReading, error) {
		var r relistReading
		cfg, _, err := given()
		if err != nil {
			return r, err
		}
		var e expiry
		var updates atomic.Int64
		progress, err := follow(ctx, e.in(cfg), &updates)
		if err != nil {
			return r, err
		}
		settle(least)
		r.Steady = liveHeap()
		before, _ := progress()
		told := updates.Load()
		began := time.Now()
		e.expire()
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
		r.Updates = updates.Load() - told
		return r, nil
	}
}

// liveHeap is what a collection finds in use.
func liveHeap() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// peakUntil is the most that was in use until something is over, and for a while
// after: what is over for the one stage goes on in the next.
func peakUntil(ctx context.Context, over func() bool) (uint64, error) {
	const pause, after = 20 * time.Millisecond, 3 * time.Second
	var peak uint64
	var since time.Time // when it was first found to be over; a collection may take long
	for {
		peak = max(peak, liveHeap())
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

func followOurs(memory watershed.Memory) follower {
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
			Add:    func(p *corev1.Pod, _ bool) { look(p) },
			Update: func(_, p *corev1.Pod) { look(p); updates.Add(1) },
			Delete: func(p *corev1.Pod, _ bool) { look(p) },
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

func followClientGo(ctx context.Context, cfg *rest.Config, updates *atomic.Int64) (func() (int64, bool), error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	f := informers.NewSharedInformerFactory(client, 0)
	i := f.Core().V1().Pods().Informer()
	reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(p any) { look(p.(*corev1.Pod)) },
		UpdateFunc: func(_, p any) { look(p.(*corev1.Pod)); updates.Add(1) },
		DeleteFunc: func(any) {},
	})
	if err != nil {
		return nil, err
	}
	f.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return nil, context.Cause(ctx)
	}
	// It tells nobody what it has read or queued. A relist is stored when a pod of
	// the store is another one, and it is idle when nothing was delivered between
	// two looks.
	key := i.GetStore().ListKeys()[0]
	pod, _, err := i.GetStore().GetByKey(key)
	if err != nil {
		return nil, err
	}
	var states, told int64
	return func() (int64, bool) {
		if now, _, _ := i.GetStore().GetByKey(key); now != pod {
			pod, states = now, states+1
		}
		before := told
		told = updates.Load()
		return states, before == told
	}, nil
}

// look is what a handler does with a pod.
func look(p *corev1.Pod) {
	if p.Name == "" {
		panic("a pod without a name")
	}
}
