// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var errOnce = errors.New("there is one watch in this benchmark")

// takeTyped gives typed values to a handler.
func takeTyped(memory watershed.Memory) taker {
	return func(ctx context.Context, body io.Reader, n int, told func(uint64)) error {
		i := newTaken(body, memory)
		reg := i.Handle(watershed.Handler[*corev1.Pod]{Update: func(old, now *corev1.Pod) { told(compare(old, now)) }})
		go func() { _ = i.Run(ctx) }() // lives as long as the process
		select {
		case <-reg.Synced():
			return count(i.Len(), n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeKeys reads of changes what can be read without decoding.
func takeKeys(ctx context.Context, body io.Reader, n int, told func(uint64)) error {
	i := newTaken(body, watershed.Packed)
	go func() { _ = i.Run(ctx) }() // lives as long as the process
	synced := make(chan struct{})
	go func() {
		initial := 0
		for c := range i.Watch(ctx) {
			if c.Initial {
				if initial++; initial == n {
					close(synced)
				}
				continue
			}
			old, now := c.Raw()
			if old.Key() != now.Key() || old.Version() >= now.Version() {
				panic("not a new state of the same pod")
			}
			told(now.Version())
		}
	}()
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newTaken(body io.Reader, memory watershed.Memory) *watershed.Informer[*corev1.Pod] {
	kind, _ := kube.KindOf(pods)
	source := &taken{frames: wire.NewWatchReader(body, wire.Protobuf, kind)}
	return watershed.FromSource(source, &watershed.Options[*corev1.Pod]{Memory: memory})
}

// taken is a watch that there is already, as our source.
type taken struct {
	frames *wire.WatchReader
	begun  atomic.Bool
}

func (t *taken) List(context.Context, reflector.ListOptions, func(*wire.Object) error) (reflector.Page, error) {
	return reflector.Page{}, errOnce
}

func (t *taken) Served(context.Context) (bool, error) { return true, nil }

func (t *taken) Watch(context.Context, reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	if t.begun.Swap(true) {
		return nil, errOnce
	}
	return t, nil
}

func (t *taken) Next() (reflector.Event[*wire.Object], error) {
	e, err := t.frames.Next()
	if err != nil {
		return reflector.Event[*wire.Object]{}, err
	}
	if e.Type == wire.Bookmark {
		return reflector.Event[*wire.Object]{Type: delta.Bookmark, Version: e.Version, InitialEnd: e.InitialEnd}, nil
	}
	return reflector.Event[*wire.Object]{Type: delta.Updated, Object: e.Object, Version: e.Version}, nil
}

func (t *taken) Close() error { return nil }

// takeClientGo is client-go's informer on the decoders of its REST client.
func takeClientGo(ctx context.Context, body io.Reader, n int, told func(uint64)) error {
	var begun atomic.Bool
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, errOnce },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			if begun.Swap(true) {
				return nil, errOnce
			}
			info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
			frames := info.StreamSerializer.NewFrameReader(io.NopCloser(body))
			objects := scheme.Codecs.WithoutConversion().DecoderToVersion(info.Serializer, nil)
			return watch.NewStreamWatcher(restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), objects), nil), nil
		},
	}
	i := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, now any) { told(compare(old.(*corev1.Pod), now.(*corev1.Pod))) },
	})
	if err != nil {
		return err
	}
	go i.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return context.Cause(ctx)
	}
	return count(len(i.GetStore().ListKeys()), n)
}
