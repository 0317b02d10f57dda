// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync/atomic"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	handlerCount   = 50
	handlerObjects = 2_000
	handlerEvents  = 20_000
	// handlerLimit is how long the deliveries may take.
	handlerLimit = time.Minute
)

// recording is a watch: the state, and then updates of it as the bytes that an API
// server writes.
type recording struct {
	name  string
	state []*corev1.Pod
	// updates are the frames.
	updates []byte
	// events is how many frames there are.
	events int
}

// newRecording returns a watch with updates of pods that the function returns.
func newRecording(name string, pod func(i int) *corev1.Pod) (*recording, error) {
	r := &recording{name: name, events: handlerEvents}
	version := 1
	next := func(i int) *corev1.Pod {
		p := pod(i)
		p.ResourceVersion = strconv.Itoa(version)
		version++
		return p
	}
	for i := range handlerObjects {
		r.state = append(r.state, next(i))
	}
	for i := range handlerEvents {
		frame, err := harness.EncodeEvent(watch.Modified, next(i*7919%handlerObjects))
		if err != nil {
			return nil, err
		}
		r.updates = append(r.updates, frame...)
	}
	return r, nil
}

// benchHandlers measures how many changes per second fifty handlers receive, from the
// bytes of a watch.
func benchHandlers(out io.Writer) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // both sides log that the watch ends
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d handlers\tdeliveries/s: ours\tclient-go\tratio\tper CPU second: ours\tclient-go\tratio\n", handlerCount)
	realistic := kubetest.Workload{Seed: 1}
	tiny := func(i int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("pod-%d", i), UID: types.UID(strconv.Itoa(i))}}
	}
	var first [2]rate
	for k, pods := range []struct {
		name string
		pod  func(int) *corev1.Pod
	}{{"tiny pods", tiny}, {"pods of 4.8 KB", realistic.Pod}} {
		r, err := newRecording(pods.name, pods.pod)
		if err != nil {
			return err
		}
		var ours, theirs rate
		for range 5 {
			a, err := r.ours()
			if err != nil {
				return err
			}
			b, err := r.clientGo()
			if err != nil {
				return err
			}
			ours, theirs = ours.best(a), theirs.best(b)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.1f\t%.0f\t%.0f\t%.1f\n", r.name,
			ours.wall, theirs.wall, ours.wall/theirs.wall, ours.cpu, theirs.cpu, ours.cpu/theirs.cpu)
		if k == 0 {
			first = [2]rate{ours, theirs}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nhandlers: deliveries/s ours=%.0f client-go=%.0f ratio=%.1f\n", first[0].wall, first[1].wall, first[0].wall/first[1].wall)
	return nil
}

// rate is deliveries per second of the clock and of processor time.
type rate struct{ wall, cpu float64 }

func (r rate) best(other rate) rate { return rate{max(r.wall, other.wall), max(r.cpu, other.cpu)} }

// timed starts the updates and waits until every handler has received every one of
// them. A handler that receives differences instead gets fewer calls, which is an error.
func (r *recording) timed(start chan struct{}, delivered *atomic.Int64) (rate, error) {
	began, used := time.Now(), harness.CPUTime()
	close(start)
	all := int64(r.events * handlerCount)
	for delivered.Load() != all {
		if time.Since(began) > handlerLimit {
			return rate{}, fmt.Errorf("%s: %d of %d deliveries after %v", r.name, delivered.Load(), all, handlerLimit)
		}
		time.Sleep(200 * time.Microsecond)
	}
	return rate{wall: float64(all) / time.Since(began).Seconds(), cpu: float64(all) / (harness.CPUTime() - used).Seconds()}, nil
}

// tally counts the updates of one handler.
type tally struct {
	own, want int64
	// delivered is that of all handlers. The handler adds its updates when it has
	// received all of them.
	delivered *atomic.Int64
}

func (t *tally) add(now *corev1.Pod) {
	t.own++
	if now.Name == "" {
		panic("not decoded")
	}
	if t.own == t.want {
		t.delivered.Add(t.own)
	}
}

// ours measures our informer.
func (r *recording) ours() (rate, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := make(chan struct{})
	kind, _ := kube.KindOf(harness.Pods)
	i := watershed.FromSource[*corev1.Pod](&replaySource{r: r, kind: kind, start: start}, &watershed.Options[*corev1.Pod]{Window: 1 << 30})
	var delivered atomic.Int64
	regs := make([]*watershed.Registration, handlerCount)
	for n := range regs {
		t := &tally{want: int64(r.events), delivered: &delivered}
		regs[n] = i.Handle(watershed.Handler[*corev1.Pod]{Update: func(_, now *corev1.Pod) { t.add(now) }})
	}
	done := make(chan error)
	go func() { done <- i.Run(ctx) }()
	for _, reg := range regs {
		<-reg.Synced()
	}
	v, err := r.timed(start, &delivered)
	cancel()
	<-done
	return v, err
}

// replaySource is the recording as a source of our informer.
type replaySource struct {
	r     *recording
	kind  *wire.Kind
	start chan struct{}
}

func (s *replaySource) List(context.Context, reflector.ListOptions, func(*wire.Object) error) (reflector.Page, error) {
	return reflector.Page{}, fmt.Errorf("not in this benchmark")
}

func (s *replaySource) Served(context.Context) (bool, error) { return true, nil }

func (s *replaySource) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return &replayWatch{replaySource: s, ctx: ctx, frames: wire.NewWatchReader(bytes.NewReader(s.r.updates), wire.Protobuf, s.kind)}, nil
}

// replayWatch is the one watch of a replaySource.
type replayWatch struct {
	*replaySource
	ctx    context.Context
	at     int
	frames *wire.WatchReader
}

func (s *replayWatch) Next() (reflector.Event[*wire.Object], error) {
	switch n := len(s.r.state); {
	case s.at < n:
		o, err := wire.Encode(s.r.state[s.at], wire.Protobuf, s.kind)
		s.at++
		return reflector.Event[*wire.Object]{Type: delta.Added, Object: o}, err
	case s.at == n:
		s.at++
		return reflector.Event[*wire.Object]{Type: delta.Bookmark, Version: strconv.Itoa(n), InitialEnd: true}, nil
	}
	select {
	case <-s.start:
	case <-s.ctx.Done():
		return reflector.Event[*wire.Object]{}, s.ctx.Err()
	}
	e, err := s.frames.Next()
	if err != nil {
		<-s.ctx.Done() // the recording has ended; the watch has not
		return reflector.Event[*wire.Object]{}, err
	}
	return reflector.Event[*wire.Object]{Type: delta.Updated, Object: e.Object, Version: e.Version}, nil
}

func (s *replayWatch) Close() error { return nil }

// clientGo measures client-go's informer.
func (r *recording) clientGo() (rate, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := make(chan struct{})
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(len(r.state))}}
			for _, p := range r.state {
				list.Items = append(list.Items, *p)
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return harness.DecodeWatch(&replayBody{start: start, r: bytes.NewReader(r.updates), done: ctx.Done()}), nil
		},
	}
	i := cache.NewSharedIndexInformer(listFirst{lw}, &corev1.Pod{}, 0, cache.Indexers{})
	var delivered atomic.Int64
	var synced []cache.InformerSynced
	for range handlerCount {
		t := &tally{want: int64(r.events), delivered: &delivered}
		reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) { t.add(now.(*corev1.Pod)) }})
		if err != nil {
			return rate{}, err
		}
		synced = append(synced, reg.HasSynced)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.Run(ctx.Done())
	}()
	cache.WaitForCacheSync(ctx.Done(), synced...)
	v, err := r.timed(start, &delivered)
	cancel()
	<-done
	return v, err
}

// listFirst makes client-go list before it watches, instead of requesting initial events.
type listFirst struct{ cache.ListerWatcher }

// IsWatchListSemanticsUnSupported is called by client-go.
func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// replayBody is a body that begins when start is closed, and ends when done is closed.
type replayBody struct {
	start chan struct{}
	done  <-chan struct{}
	r     io.Reader
}

func (b *replayBody) Read(p []byte) (int, error) {
	select {
	case <-b.start:
	case <-b.done:
		return 0, io.EOF
	}
	n, err := b.r.Read(p)
	if err == io.EOF && n == 0 {
		<-b.done
	}
	return n, err
}

func (b *replayBody) Close() error { return nil }
