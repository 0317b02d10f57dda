// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// streamVariable is the address of the watch that a subject reads.
	streamVariable = "WATERSHED_BENCH_STREAM"
	// warmUp is how long changes are read before the measurement.
	warmUp = 5 * time.Second
)

// churnReading is the result that a process has measured of itself.
type churnReading struct {
	// P50, P99 and Max are latencies, from when a change was due to when the reader
	// received it.
	P50, P99, Max time.Duration
	// CPU is how many processors were busy, on average.
	CPU float64
	// Early and Late are the live heap after the warm-up and at the end.
	Early, Late uint64
	// Missed is how many changes the reader received as differences, because it had
	// fallen behind.
	Missed int
}

var churnTrial = harness.Trial[churnReading]{
	Name: "churn",
	Subjects: []harness.Subject[churnReading]{
		{
			Name: "ours packed", Bar: harness.Bar{Name: "Watershed, packed", Colour: harness.ColourOurs},
			Runs: 3, Measure: measureChurn(churnTyped(watershed.Packed)),
		},
		{
			Name: "ours packed keys", Bar: harness.Bar{
				Name: "Watershed, packed, keys only", Colour: harness.ColourOurs,
			},
			Runs: 3, Measure: measureChurn(churnKeys),
		},
		{
			Name: "ours fast", Bar: harness.Bar{Name: "Watershed, fast", Colour: harness.ColourOursPale},
			Runs: 3, Measure: measureChurn(churnTyped(watershed.Fast)),
		},
		{
			Name: "client-go", Bar: harness.Bar{Name: "client-go, typed", Colour: harness.ColourClientGo},
			Runs: 3, Measure: measureChurn(churnClientGo),
		},
	},
	Order: func(r churnReading) float64 { return r.P99.Seconds() },
}

// churnSize is the size of the benchmark.
type churnSize struct {
	pods    int
	seconds int
	pace    harness.Pace
}

// newChurnSize returns the size from the environment, which defaults to the whole
// benchmark.
func newChurnSize() (c churnSize, err error) {
	if c.pods, err = harness.EnvInt(harness.EnvPods, 100_000); err != nil {
		return c, err
	}
	if c.seconds, err = harness.EnvInt(harness.EnvSeconds, 30); err != nil {
		return c, err
	}
	rate, err := harness.EnvInt(harness.EnvRate, 10_000)
	c.pace = harness.Pace(rate * int(harness.PaceInterval) / int(time.Second))
	if c.pace < 1 && err == nil {
		err = fmt.Errorf("%s=%d is less than one change every %v", harness.EnvRate, rate, harness.PaceInterval)
	}
	return c, err
}

// warming returns how many changes there are before the measurement.
func (c churnSize) warming() int { return c.pace.Count(warmUp) }

// measured returns how many changes are measured.
func (c churnSize) measured() int { return c.pace.Count(time.Duration(c.seconds) * time.Second) }

// String returns the size for headings.
func (c churnSize) String() string {
	perSecond := float64(c.pace.Count(time.Second))
	return fmt.Sprintf("%s pods, %s changes a second", harness.Whole(float64(c.pods)), harness.Whole(perSecond))
}

// benchChurn measures the cost of 10,000 changes a second of 100,000 pods, and their
// latency until the handler is called.
func benchChurn(out io.Writer) error {
	size, median, writer, err := runWithStream(&churnTrial)
	if err != nil {
		return err
	}
	ours, theirs := median["ours packed"], median["client-go"]
	r := &harness.Report{
		Name: "churn",
		Heading: fmt.Sprintf("%v of random ones, %d s after %.0f s of warm-up, one reader; %s. "+
			"The watch is written by another process, which takes %.2f processors.",
			size, size.seconds, warmUp.Seconds(), churnTrial.Repetitions(), writer),
		Columns:  []string{"reader"},
		Measures: harness.Informer,
		Figure:   harness.Figure{Title: size.String()},
		Summary: fmt.Sprintf("churn: p99-ms ours=%.1f client-go=%.1f cpu ours=%.2f client-go=%.2f heap-growth=%.1f",
			harness.InMilliseconds(ours.P99), harness.InMilliseconds(theirs.P99), ours.CPU, theirs.CPU,
			ours.growth()/1e6),
	}
	type reading = churnReading
	harness.AddRows(r, churnTrial.Rows(median),
		harness.Ms("p50, ms", "%.2f", func(r reading) time.Duration { return r.P50 }, "latency p50, ms").
			As("p50", "ms"),
		harness.Ms("p99, ms", "%.1f", func(r reading) time.Duration { return r.P99 }, "latency p99, ms").
			As("p99", "ms"),
		harness.Ms("max, ms", "%.0f", func(r reading) time.Duration { return r.Max }),
		harness.Col("CPU, processors", "%.2f", func(r reading) float64 { return r.CPU }, "CPU, processors").
			As("cpu", "cores"),
		harness.Col("live heap, MB", harness.MB, func(r reading) uint64 { return r.Late }, "live heap, MB").
			As("heap", "bytes"),
		harness.Col("growth, MB", "%+.0f", func(r reading) float64 { return r.growth() / 1e6 }),
		harness.Col("merged", "%.0f", func(r reading) int { return r.Missed }),
	)
	return r.Write(out)
}

// growth returns by how many bytes the live heap has grown.
func (r churnReading) growth() float64 { return float64(r.Late) - float64(r.Early) }

// runWithStream runs a trial whose subjects read the watch of the benchmark, one after the
// other. It returns the size of the watch, the results, and how many processors writing the
// watch took.
func runWithStream[R any](t *harness.Trial[R]) (size churnSize, median map[string]R, writer float64, err error) {
	if size, err = newChurnSize(); err != nil {
		return size, nil, 0, err
	}
	stream, err := harness.NewStream(size.pods)
	if err != nil {
		return size, nil, 0, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return size, nil, 0, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		writer = stream.Serve(listener, size.pace, size.warming(), size.measured())
	}()
	median, err = t.Run(context.Background(), streamVariable+"="+listener.Addr().String())
	_ = listener.Close() // ends Serve
	<-written
	return size, median, writer, err
}

// measureChurn returns the measurement of a reader in this process.
func measureChurn(read churnReader) func(context.Context) (churnReading, error) {
	return func(ctx context.Context) (churnReading, error) {
		size, err := newChurnSize()
		if err != nil {
			return churnReading{}, err
		}
		// The end of the process closes the connection. The reader must not see its end.
		conn, err := net.Dial("tcp4", os.Getenv(streamVariable))
		if err != nil {
			return churnReading{}, err
		}
		warming := harness.NewRecorder(harness.FirstVersion+size.pods, size.warming(), size.pace)
		boundary := warming.Next()
		measured := harness.NewRecorder(boundary, size.measured(), size.pace)
		received := func(version uint64) {
			if int(version) < boundary {
				warming.Received(version)
			} else {
				measured.Received(version)
			}
		}
		// The buffer has the size of an HTTP client's.
		if err := read(ctx, bufio.NewReaderSize(conn, 32<<10), size.pods, received); err != nil {
			return churnReading{}, err
		}
		runtime.GC()
		time.Sleep(2 * time.Second) // for background work after the first state
		if _, err := warming.Run(conn); err != nil {
			return churnReading{}, err
		}
		return recordChurn(measured, conn)
	}
}

// recordChurn measures the process while changes are read. The heap is measured before
// and after, while nothing is read, so that collections delay no change.
func recordChurn(measured *harness.Recorder, conn net.Conn) (r churnReading, err error) {
	runtime.GC()
	r.Early = harness.LiveHeap()
	began, used := time.Now(), harness.CPUTime()
	if r.Missed, err = measured.Run(conn); err != nil {
		return r, err
	}
	r.CPU = (harness.CPUTime() - used).Seconds() / time.Since(began).Seconds()
	runtime.GC()
	r.Late = harness.LiveHeap()
	r.P50, r.P99, r.Max = measured.Latencies().Quantiles()
	return r, nil
}

var errOnce = errors.New("there is one watch in this benchmark")

// churnReader starts to read a watch of n pods and returns when it has the initial
// state. It calls received with the version of every change.
type churnReader func(ctx context.Context, body io.Reader, n int, received func(version uint64)) error

// churnTyped returns a reader with our informer and a handler of typed values.
func churnTyped(memory watershed.Memory) churnReader {
	return func(ctx context.Context, body io.Reader, n int, received func(uint64)) error {
		return churnWith(ctx, newChurnInformer(body, &watershed.SourceOptions[*corev1.Pod]{Memory: memory}), n,
			received)
	}
}

// churnWith reads with an informer and a handler of typed values.
func churnWith(ctx context.Context, i *watershed.Informer[*corev1.Pod], n int, received func(uint64)) error {
	reg := i.Handle(watershed.Handler[*corev1.Pod]{
		Update: func(old, now *corev1.Pod) { received(comparePods(old, now)) },
	})
	go func() { _ = i.Run(ctx) }() // lives as long as the process
	select {
	case <-reg.Synced():
		return harness.CheckCount(i.Len(), n)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// churnKeys is a reader with our informer and a watch loop that reads keys and
// versions, for which nothing is decoded.
func churnKeys(ctx context.Context, body io.Reader, n int, received func(uint64)) error {
	i := newChurnInformer(body, &watershed.SourceOptions[*corev1.Pod]{Memory: watershed.Packed})
	go func() { _ = i.Run(ctx) }() // lives as long as the process
	synced := make(chan struct{})
	go func() {
		initial := 0
		for c := range i.Watch(ctx) {
			if c.Initial {
				initial++
				if initial == n {
					close(synced)
				}
				continue
			}
			old, now := c.Raw()
			if old.Key() != now.Key() || old.Version() >= now.Version() {
				panic("not a new state of the same pod")
			}
			received(now.Version())
		}
	}()
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newChurnInformer returns our informer with the watch as its source.
func newChurnInformer(body io.Reader, opts *watershed.SourceOptions[*corev1.Pod]) *watershed.Informer[*corev1.Pod] {
	kind, _ := kube.KindOf(harness.Pods)
	source := &churnSource{frames: stream.NewWatchReader(body, wire.Protobuf, kind)}
	return watershed.FromSource(source, opts)
}

// churnSource is a source with a single watch, which is open already.
type churnSource struct {
	frames *stream.WatchReader
	begun  atomic.Bool
}

func (s *churnSource) List(context.Context, reflector.ListOptions, func(*wire.Object) error) (reflector.Page, error) {
	return reflector.Page{}, errOnce
}

func (s *churnSource) Served(context.Context) (bool, error) { return true, nil }

func (s *churnSource) Watch(context.Context, reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	if s.begun.Swap(true) {
		return nil, errOnce
	}
	return s, nil
}

func (s *churnSource) Next() (reflector.Event[*wire.Object], error) {
	e, err := s.frames.Next()
	if err != nil {
		return reflector.Event[*wire.Object]{}, err
	}
	if e.Type == stream.Bookmark {
		return reflector.Event[*wire.Object]{Type: delta.Bookmark, Version: e.Version, InitialEnd: e.InitialEnd}, nil
	}
	return reflector.Event[*wire.Object]{Type: delta.Updated, Object: e.Object, Version: e.Version}, nil
}

func (s *churnSource) Close() error { return nil }

// newChurnClientGo returns client-go's informer with the watch as its source, and the
// decoders of its REST client.
func newChurnClientGo(body io.Reader, indexers cache.Indexers) cache.SharedIndexInformer {
	var begun atomic.Bool
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (k8sruntime.Object, error) {
			return nil, errOnce
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			if begun.Swap(true) {
				return nil, errOnce
			}
			return harness.DecodeWatch(io.NopCloser(body)), nil
		},
	}
	return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, indexers)
}

// churnClientGo is a reader with client-go's informer.
func churnClientGo(ctx context.Context, body io.Reader, n int, received func(uint64)) error {
	i := newChurnClientGo(body, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, now any) { received(comparePods(old.(*corev1.Pod), now.(*corev1.Pod))) },
	})
	if err != nil {
		return err
	}
	go i.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return context.Cause(ctx)
	}
	return harness.CheckCount(len(i.GetStore().ListKeys()), n)
}

// comparePods reads both states as a handler would, and returns the new version.
func comparePods(old, now *corev1.Pod) uint64 {
	same := old.Namespace == now.Namespace && old.Name == now.Name
	if !same || old.ResourceVersion >= now.ResourceVersion || now.Status.Phase != corev1.PodRunning {
		panic("not a new state of the same pod")
	}
	version, err := strconv.ParseUint(now.ResourceVersion, 10, 64)
	if err != nil {
		panic(err)
	}
	return version
}
