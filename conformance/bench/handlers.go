// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"encoding/binary"
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
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
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
)

// recording is a watch stream as bytes: the state, then updates of it, as an API
// server writes them.
type recording struct {
	name  string
	state []*corev1.Pod
	// updates has the frames, events how many there are.
	updates []byte
	events  int
}

// newRecording makes a stream of random updates of realistic or of tiny pods.
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
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var buf bytes.Buffer
	for i := range handlerEvents {
		var object bytes.Buffer
		p := next(i * 7919 % handlerObjects)
		p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		if err := serializer.Encode(p, &object); err != nil {
			return nil, err
		}
		event := metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: object.Bytes()}}
		frame, err := event.Marshal()
		if err != nil {
			return nil, err
		}
		buf.Write(binary.BigEndian.AppendUint32(nil, uint32(len(frame))))
		buf.Write(frame)
	}
	r.updates = buf.Bytes()
	return r, nil
}

// benchHandlers measures how many changes reach fifty handlers, from the bytes of
// a watch.
func benchHandlers(out io.Writer) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // both log that the stream ends
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

// rate is deliveries per second, on the clock and of processor time.
type rate struct{ wall, cpu float64 }

func (r rate) best(other rate) rate { return rate{max(r.wall, other.wall), max(r.cpu, other.cpu)} }

// timed lets the stream go and waits until every handler has had every update. A
// handler that is given differences is told of fewer.
func (r *recording) timed(start func(), delivered func() int64, last func() bool) (rate, error) {
	began, used := time.Now(), cpuTime()
	start()
	for !last() {
		if time.Since(began) > time.Minute {
			return rate{}, fmt.Errorf("%s: %d deliveries after a minute", r.name, delivered())
		}
		time.Sleep(200 * time.Microsecond)
	}
	if n := delivered(); n != int64(r.events*handlerCount) {
		return rate{}, fmt.Errorf("%s: %d deliveries, want %d", r.name, n, r.events*handlerCount)
	}
	n := float64(delivered())
	return rate{wall: n / time.Since(began).Seconds(), cpu: n / (cpuTime() - used).Seconds()}, nil
}

func (r *recording) ours() (rate, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go1 := make(chan struct{})
	kind, _ := kube.KindOf(pods)
	i := watershed.FromSource[*corev1.Pod](&replay{r: r, kind: kind, start: go1}, &watershed.Options[*corev1.Pod]{Window: 1 << 30})
	var delivered atomic.Int64
	regs := make([]*watershed.Registration, handlerCount)
	for n := range regs {
		var own int64
		regs[n] = i.Handle(watershed.Handler[*corev1.Pod]{Update: func(_, now *corev1.Pod) {
			if own++; now.Name == "" {
				panic("not decoded")
			}
			if own == int64(r.events) {
				delivered.Add(own)
			}
		}})
	}
	done := make(chan error)
	go func() { done <- i.Run(ctx) }()
	for _, reg := range regs {
		<-reg.Synced()
	}
	v, err := r.timed(func() { close(go1) }, delivered.Load, func() bool { return delivered.Load() == int64(r.events*handlerCount) })
	cancel()
	<-done
	return v, err
}

// replay is the recording as our source.
type replay struct {
	r     *recording
	kind  *wire.Kind
	start chan struct{}
}

func (s *replay) List(context.Context, reflector.ListOptions, func(*wire.Object) error) (reflector.Page, error) {
	return reflector.Page{}, fmt.Errorf("not in this benchmark")
}

func (s *replay) Served(context.Context) (bool, error) { return true, nil }

func (s *replay) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return &replayed{replay: s, ctx: ctx, frames: wire.NewWatchReader(bytes.NewReader(s.r.updates), wire.Protobuf, s.kind)}, nil
}

type replayed struct {
	*replay
	ctx    context.Context
	at     int
	frames *wire.WatchReader
}

func (s *replayed) Next() (reflector.Event[*wire.Object], error) {
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
		<-s.ctx.Done() // nothing comes after the recording
		return reflector.Event[*wire.Object]{}, err
	}
	return reflector.Event[*wire.Object]{Type: delta.Updated, Object: e.Object, Version: e.Version}, nil
}

func (s *replayed) Close() error { return nil }

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
			// The decoders that client-go's REST client makes for protobuf.
			info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
			frames := info.StreamSerializer.NewFrameReader(&gated{start: start, r: bytes.NewReader(r.updates), done: ctx.Done()})
			objects := scheme.Codecs.WithoutConversion().DecoderToVersion(info.Serializer, nil)
			return watch.NewStreamWatcher(restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), objects), nil), nil
		},
	}
	i := cache.NewSharedIndexInformer(unstreamed{lw}, &corev1.Pod{}, 0, cache.Indexers{})
	var delivered atomic.Int64
	var synced []cache.InformerSynced
	for range handlerCount {
		var own int64
		reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) {
			if own++; now.(*corev1.Pod).Name == "" {
				panic("not decoded")
			}
			if own == int64(r.events) {
				delivered.Add(own)
			}
		}})
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
	v, err := r.timed(func() { close(start) }, delivered.Load, func() bool { return delivered.Load() == int64(r.events*handlerCount) })
	cancel()
	<-done
	return v, err
}

// unstreamed tells client-go not to ask for initial events.
type unstreamed struct{ cache.ListerWatcher }

// IsWatchListSemanticsUnSupported is how client-go asks.
func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

// gated is a body that begins when it is told and does not end before its reader.
type gated struct {
	start chan struct{}
	done  <-chan struct{}
	r     io.Reader
}

func (g *gated) Read(p []byte) (int, error) {
	select {
	case <-g.start:
	case <-g.done:
		return 0, io.EOF
	}
	n, err := g.r.Read(p)
	if err == io.EOF && n == 0 {
		<-g.done
	}
	return n, err
}

func (g *gated) Close() error { return nil }
