// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// forAllKinds runs a test for random objects of every kind in both wiretest.Encodings, once with
// the kind given and once with the kind taken from the bytes.
func forAllKinds(
	t *testing.T, test func(t *testing.T, e wire.Encoding, gvk schema.GroupVersionKind, kind *wire.Kind,
		objects []runtime.Object),
) {
	r := specimen.Rand(t)
	filler := specimen.New(r)
	for _, gvk := range wiretest.ObjectKinds(t) {
		var objects []runtime.Object
		for range 3 {
			objects = append(objects, filler.Object(gvk))
		}
		for _, e := range wiretest.Encodings {
			for _, kind := range []*wire.Kind{wiretest.KindOf(gvk), nil} {
				t.Run(fmt.Sprintf("%v %s/%v", e, gvk, kind != nil), func(t *testing.T) {
					test(t, e, gvk, kind, objects)
				})
			}
		}
	}
}

// checkRead compares an object that was read. One whose kind was taken from its bytes
// must equal one whose kind was given, which is compared completely.
func checkRead(
	tb testing.TB, o *wire.Object, gvk schema.GroupVersionKind, e wire.Encoding, kind *wire.Kind, body []byte,
) {
	tb.Helper()
	if kind != nil {
		wiretest.WantEqual(tb, "Kind", o.Kind(), kind)
		wiretest.CheckObject(tb, o, gvk, e, body)
		return
	}
	typed, err := wire.NewObject(wiretest.Bare(tb, e, body), e, wiretest.KindOf(gvk))
	wiretest.Must(tb, err)
	if !wire.Same(o, typed) || o.Key() != typed.Key() {
		tb.Errorf("%v without a kind is %v", typed, o)
	}
}

func TestReadObject_readsEveryKind(t *testing.T) {
	forAllKinds(t, func(t *testing.T, e wire.Encoding, gvk schema.GroupVersionKind, kind *wire.Kind,
		objects []runtime.Object) {
		for _, object := range objects {
			body := wiretest.Encode(t, e, gvk.GroupVersion(), object)
			o, err := stream.ReadObject(iotest.HalfReader(bytes.NewReader(body)), e, kind)
			wiretest.Must(t, err)
			checkRead(t, o, gvk, e, kind, body)
		}
	})
}

func TestListReader_readsEveryKind(t *testing.T) {
	lists := 0
	forAllKinds(t, func(t *testing.T, e wire.Encoding, gvk schema.GroupVersionKind, kind *wire.Kind,
		objects []runtime.Object) {
		list, ok := wiretest.NewList(t, gvk, objects)
		if !ok {
			t.Skip("has no list")
		}
		lists++
		body := wiretest.Encode(t, e, gvk.GroupVersion(), list)
		l := stream.NewListReader(bytes.NewReader(body), e, kind)
		for _, object := range objects {
			o, err := l.Next()
			wiretest.Must(t, err)
			checkRead(t, o, gvk, e, kind, wiretest.Encode(t, e, gvk.GroupVersion(), object))
		}
		wantEnd(t, l)
	})
	if lists < 100 && !wiretest.Race {
		t.Errorf("only %d lists", lists)
	}
}

func wantEnd(tb testing.TB, l *stream.ListReader) {
	tb.Helper()
	for range 2 {
		if o, err := l.Next(); o != nil || !errors.Is(err, io.EOF) {
			tb.Fatalf("after the last object come %v, %v", o, err)
		}
	}
	wiretest.WantEqual(tb, "Meta", l.Meta(), stream.ListMeta{
		ResourceVersion: "4711", Continue: "next\"page", RemainingItemCount: 12,
	})
}

func TestWatchReader_readsEveryKind(t *testing.T) {
	types := []watch.EventType{watch.Added, watch.Modified, watch.Deleted}
	forAllKinds(t, func(t *testing.T, e wire.Encoding, gvk schema.GroupVersionKind, kind *wire.Kind,
		objects []runtime.Object) {
		var events []watch.Event
		for i, object := range objects {
			events = append(events, watch.Event{Type: types[i], Object: object})
		}
		bookmark := wiretest.KindOf(gvk).New()
		bookmark.(metav1.Object).SetResourceVersion("815")
		bookmark.(metav1.Object).SetAnnotations(map[string]string{
			"a": "b", "k8s.io/initial-events-end": "true", "z": "c",
		})
		plain := wiretest.KindOf(gvk).New()
		plain.(metav1.Object).SetResourceVersion("816")
		events = append(events, watch.Event{Type: watch.Bookmark, Object: bookmark},
			watch.Event{Type: watch.Bookmark, Object: plain})
		body := wiretest.EncodeWatch(t, e, gvk.GroupVersion(), events)
		w := stream.NewWatchReader(iotest.OneByteReader(bytes.NewReader(body)), e, kind)
		for i, object := range objects {
			ev, err := w.Next()
			wiretest.Must(t, err)
			wiretest.WantEqual(t, "Type", ev.Type.String(), string(types[i]))
			wiretest.WantEqual(t, "Version", ev.Version, object.(metav1.Object).GetResourceVersion())
			checkRead(t, ev.Object, gvk, e, kind, wiretest.Encode(t, e, gvk.GroupVersion(), object))
		}
		for _, want := range []stream.Event{
			{Type: stream.Bookmark, Version: "815", InitialEnd: true},
			{Type: stream.Bookmark, Version: "816"},
		} {
			ev, err := w.Next()
			wiretest.Must(t, err)
			wiretest.WantEqual(t, "bookmark", ev, want)
		}
		for range 2 {
			if ev, err := w.Next(); !errors.Is(err, io.EOF) {
				t.Fatalf("after the last event come %v, %v", ev, err)
			}
		}
	})
}
