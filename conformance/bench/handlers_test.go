// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	handlerCount   = 50
	handlerObjects = 2_000
	handlerEvents  = 20_000
	// handlerRounds is how often each side is measured. The best round counts.
	handlerRounds = 5
	// handlerLimit is how long the deliveries may take.
	handlerLimit = time.Minute
)

// recording is a watch as the bytes that an API server writes: the state, and then updates
// of it.
type recording struct{ state, updates []byte }

// newRecording returns a watch with updates of pods that the function returns.
func newRecording(pod func(i int) *corev1.Pod) (r recording, err error) {
	version := 0
	write := func(to *[]byte, event watch.EventType, p *corev1.Pod) {
		version++
		p.ResourceVersion = strconv.Itoa(version)
		frame, failed := harness.EncodeEvent(event, p)
		if failed != nil {
			err = failed
		}
		*to = append(*to, frame...)
	}
	for i := range handlerObjects {
		write(&r.state, watch.Added, pod(i))
	}
	version--
	write(&r.state, watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	for i := range handlerEvents {
		write(&r.updates, watch.Modified, pod(i*7919%handlerObjects))
	}
	return r, err
}

// replay is the body of a watch. It has the state, the updates when start is closed, and
// ends with ctx.
type replay struct {
	ctx            context.Context
	start          chan struct{}
	state, updates io.Reader
}

func (r *replay) Read(p []byte) (int, error) {
	if n, _ := r.state.Read(p); n > 0 {
		return n, nil
	}
	select {
	case <-r.start:
	case <-r.ctx.Done():
		return 0, io.EOF
	}
	n, err := r.updates.Read(p)
	if err != nil {
		<-r.ctx.Done() // the recording has ended; the watch has not
	}
	return n, err
}

// tally counts the updates of one handler.
type tally struct {
	own int64
	// delivered is that of all handlers. The handler adds its updates when it has
	// received all of them.
	delivered *atomic.Int64
}

func (t *tally) add(now *corev1.Pod) {
	t.own++
	if now.Name == "" {
		panic("not decoded")
	}
	if t.own == handlerEvents {
		t.delivered.Add(t.own)
	}
}

// handlersOurs adds handlers to our informer, runs it until ctx ends, and returns when it
// has synced.
func handlersOurs(ctx context.Context, body io.Reader, delivered *atomic.Int64) (ended chan error, err error) {
	i := newChurnInformer(body, &watershed.SourceOptions[*corev1.Pod]{Window: 1 << 30})
	regs := make([]*watershed.Registration, handlerCount)
	for n := range regs {
		t := &tally{delivered: delivered}
		regs[n] = i.Handle(watershed.Handler[*corev1.Pod]{Update: func(_, now *corev1.Pod) { t.add(now) }})
	}
	ended = make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	for _, reg := range regs {
		<-reg.Synced()
	}
	return ended, nil
}

// handlersClientGo does the same with client-go's informer.
func handlersClientGo(ctx context.Context, body io.Reader, delivered *atomic.Int64) (ended chan error, err error) {
	i := newChurnClientGo(body, cache.Indexers{})
	var synced []cache.InformerSynced
	for range handlerCount {
		t := &tally{delivered: delivered}
		reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, now any) { t.add(now.(*corev1.Pod)) },
		})
		if err != nil {
			return nil, err
		}
		synced = append(synced, reg.HasSynced)
	}
	ended = make(chan error, 1)
	go func() {
		i.Run(ctx.Done())
		ended <- nil
	}()
	cache.WaitForCacheSync(ctx.Done(), synced...)
	return ended, nil
}

// rate is deliveries per second of the clock and of processor time.
type rate struct{ wall, cpu float64 }

func (r rate) best(other rate) rate { return rate{max(r.wall, other.wall), max(r.cpu, other.cpu)} }

// measure starts the updates when the informer has synced, and waits until every handler
// has received every one of them. A handler that receives differences instead gets fewer
// calls, which is an error.
func (r recording) measure(run func(context.Context, io.Reader, *atomic.Int64) (chan error, error)) (rate, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var delivered atomic.Int64
	body := &replay{ctx, make(chan struct{}), bytes.NewReader(r.state), bytes.NewReader(r.updates)}
	ended, err := run(ctx, body, &delivered)
	if err != nil {
		return rate{}, err
	}
	const all = handlerEvents * handlerCount
	began, used := time.Now(), harness.CPUTime()
	close(body.start)
	// A loop of its own, because the time is measured.
	for delivered.Load() != all {
		if time.Since(began) > handlerLimit {
			return rate{}, fmt.Errorf("%d of %d deliveries after %v", delivered.Load(), all, handlerLimit)
		}
		time.Sleep(200 * time.Microsecond)
	}
	v := rate{wall: all / time.Since(began).Seconds(), cpu: all / (harness.CPUTime() - used).Seconds()}
	cancel()
	<-ended
	return v, nil
}

// BenchmarkHandlers measures how many changes per second fifty handlers receive, from the
// bytes of a watch. make bench NAME=handlers runs it.
func BenchmarkHandlers(b *testing.B) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler)) // both sides log that the watch ends
	tiny := func(i int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("pod-%d", i), UID: types.UID(strconv.Itoa(i)),
		}}
	}
	// The line for scripts is that of tiny pods.
	ours, theirs := benchHandlers(b, "tiny pods", tiny)
	fullOurs, fullTheirs := benchHandlers(b, "pods of 4.8 KB", kubetest.Workload{Seed: 1}.Pod)
	r := harness.Report{Name: "handlers", Measures: harness.Informer}
	r.Value("tiny.ours", ours.wall, "")
	r.Value("tiny.client-go", theirs.wall, "")
	r.Value("full.ours", fullOurs.wall, "")
	r.Value("full.client-go", fullTheirs.wall, "")
	publish(b, &r)
	fmt.Fprintf(os.Stdout, "handlers: deliveries/s ours=%.0f client-go=%.0f ratio=%.1f\n",
		ours.wall, theirs.wall, ours.wall/theirs.wall)
}

// publish publishes the report of a benchmark that make bench runs.
func publish(b *testing.B, r *harness.Report) {
	b.Helper()
	if os.Getenv("WATERSHED_BENCH") != r.Name {
		return
	}
	if err := r.Publish(io.Discard); err != nil {
		b.Fatal(err)
	}
}

// benchHandlers measures both sides in turns.
func benchHandlers(b *testing.B, name string, pod func(i int) *corev1.Pod) (ours, theirs rate) {
	r, err := newRecording(pod)
	if err != nil {
		b.Fatal(err)
	}
	b.Run(name, func(b *testing.B) {
		for range handlerRounds {
			x, err := r.measure(handlersOurs)
			if err != nil {
				b.Fatal(err)
			}
			y, err := r.measure(handlersClientGo)
			if err != nil {
				b.Fatal(err)
			}
			ours, theirs = ours.best(x), theirs.best(y)
		}
		b.ReportMetric(0, "ns/op") // the best of several rounds counts
		b.ReportMetric(ours.wall, "ours-deliveries/s")
		b.ReportMetric(theirs.wall, "client-go-deliveries/s")
		b.ReportMetric(ours.wall/theirs.wall, "ratio")
		b.ReportMetric(ours.cpu, "ours-deliveries/CPU-s")
		b.ReportMetric(theirs.cpu, "client-go-deliveries/CPU-s")
		b.ReportMetric(ours.cpu/theirs.cpu, "CPU-ratio")
	})
	return ours, theirs
}
