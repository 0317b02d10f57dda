// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var errOnce = errors.New("there is one watch in this benchmark")

// churnReader starts to read a watch of n pods and returns when it has the initial
// state. It calls received with the version of every change.
type churnReader func(ctx context.Context, body io.Reader, n int, received func(version uint64)) error

// churnTyped returns a reader with our informer and a handler of typed values.
func churnTyped(memory watershed.Memory) churnReader {
	return func(ctx context.Context, body io.Reader, n int, received func(uint64)) error {
		return churnWith(ctx, newChurnInformer(body, &watershed.Options[*corev1.Pod]{Memory: memory}), n, received)
	}
}

// churnWith reads with an informer and a handler of typed values.
func churnWith(ctx context.Context, i *watershed.Informer[*corev1.Pod], n int, received func(uint64)) error {
	reg := i.Handle(watershed.Handler[*corev1.Pod]{Update: func(old, now *corev1.Pod) { received(comparePods(old, now)) }})
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
	i := newChurnInformer(body, &watershed.Options[*corev1.Pod]{Memory: watershed.Packed})
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
func newChurnInformer(body io.Reader, opts *watershed.Options[*corev1.Pod]) *watershed.Informer[*corev1.Pod] {
	kind, _ := kube.KindOf(harness.Pods)
	source := &churnSource{frames: wire.NewWatchReader(body, wire.Protobuf, kind)}
	return watershed.FromSource(source, opts)
}

// churnSource is a source with a single watch, which is open already.
type churnSource struct {
	frames *wire.WatchReader
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
	if e.Type == wire.Bookmark {
		return reflector.Event[*wire.Object]{Type: delta.Bookmark, Version: e.Version, InitialEnd: e.InitialEnd}, nil
	}
	return reflector.Event[*wire.Object]{Type: delta.Updated, Object: e.Object, Version: e.Version}, nil
}

func (s *churnSource) Close() error { return nil }

// churnClientGo is a reader with client-go's informer and the decoders of its REST
// client.
func churnClientGo(ctx context.Context, body io.Reader, n int, received func(uint64)) error {
	var begun atomic.Bool
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, errOnce },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			if begun.Swap(true) {
				return nil, errOnce
			}
			return harness.DecodeWatch(io.NopCloser(body)), nil
		},
	}
	i := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
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
	if old.Namespace != now.Namespace || old.Name != now.Name || old.ResourceVersion >= now.ResourceVersion || now.Status.Phase != corev1.PodRunning {
		panic("not a new state of the same pod")
	}
	version, err := strconv.ParseUint(now.ResourceVersion, 10, 64)
	if err != nil {
		panic(err)
	}
	return version
}
