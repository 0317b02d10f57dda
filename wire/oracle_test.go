// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/wire"
)

// checkObject compares everything that can be read from o with what apimachinery reads
// from the body of a GET.
func checkObject(tb testing.TB, o *wire.Object, gvk schema.GroupVersionKind, e wire.Encoding, body []byte) {
	tb.Helper()
	want, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	must(tb, err)
	m := want.(metav1.Object)
	wantEqual(tb, "Key", o.Key(), key(m))
	wantEqual(tb, "Namespace", o.Namespace(), m.GetNamespace())
	wantEqual(tb, "Name", o.Name(), m.GetName())
	wantEqual(tb, "ResourceVersion", o.ResourceVersion(), m.GetResourceVersion())
	wantEqual(tb, "Version", o.Version(), version(m))
	wantEqual(tb, "GroupVersionKind", o.GroupVersionKind(), gvk)
	wantEqual(tb, "Encoding", o.Encoding(), e)
	if want := bare(tb, e, body); !bytes.Equal(o.Bytes(), want) {
		tb.Errorf("Bytes are\n%q, want\n%q", o.Bytes(), want)
	}
	if want := m.GetCreationTimestamp().Time; !o.Created().Equal(want) {
		tb.Errorf("Created is %v, want %v", o.Created(), want)
	}
	checkMeta(tb, o, m)
	checkUnstructured(tb, o, gvk, body, want)
	checkPartial(tb, o, gvk)

	decode, ok := typed[gvk]
	if !ok {
		return
	}
	own, err := decode(o)
	must(tb, err)
	wantEqual(tb, "GVK of the typed value", own.GetObjectKind().GroupVersionKind(), gvk)
	want.GetObjectKind().SetGroupVersionKind(gvk)
	if !apiequality.Semantic.DeepEqual(own, want) {
		tb.Errorf("typed value differs: %s", cmp.Diff(want, own))
	}
}

func checkMeta(tb testing.TB, o *wire.Object, m metav1.Object) {
	tb.Helper()
	if diff := cmp.Diff(m.GetLabels(), labelsOf(o), cmpopts.EquateEmpty()); diff != "" {
		tb.Errorf("labels differ: %s", diff)
	}
	for k, v := range m.GetLabels() {
		if got, ok := o.Label(k); !ok || got != v {
			tb.Errorf("label %q is %q, %v, want %q", k, got, ok, v)
		}
	}
	if v, ok := o.Label("no such label"); ok {
		tb.Errorf("a label that is not there is %q", v)
	}
}

func checkUnstructured(tb testing.TB, o *wire.Object, gvk schema.GroupVersionKind, body []byte, typed runtime.Object) {
	tb.Helper()
	got, err := wire.DecodeFresh[*unstructured.Unstructured](o)
	must(tb, err)
	want := &unstructured.Unstructured{}
	if o.Encoding() == wire.JSON {
		_, _, err = unstructured.UnstructuredJSONScheme.Decode(body, nil, want)
	} else {
		want.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	}
	must(tb, err)
	want.SetGroupVersionKind(gvk)
	if !reflect.DeepEqual(got, want) {
		tb.Errorf("unstructured value differs: %s", cmp.Diff(want, got))
	}
}

func checkPartial(tb testing.TB, o *wire.Object, gvk schema.GroupVersionKind) {
	tb.Helper()
	got, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	must(tb, err)
	want := &metav1.PartialObjectMetadata{}
	if o.Encoding() == wire.JSON {
		err = utiljson.Unmarshal(o.Bytes(), want)
	} else {
		err = want.Unmarshal(o.Bytes())
	}
	must(tb, err)
	want.SetGroupVersionKind(gvk)
	if !reflect.DeepEqual(got, want) {
		tb.Errorf("metadata differs: %s", cmp.Diff(want, got))
	}
}

// forAllKinds runs a test for random objects of every kind in both encodings, once with
// the kind given and once with the kind taken from the bytes.
func forAllKinds(t *testing.T, test func(t *testing.T, e wire.Encoding, gvk schema.GroupVersionKind, kind *wire.Kind, objects []runtime.Object)) {
	r := specimen.Rand(t)
	filler := specimen.New(r)
	for _, gvk := range objectKinds(t) {
		var objects []runtime.Object
		for range 3 {
			objects = append(objects, filler.Object(gvk))
		}
		for _, e := range encodings {
			for _, kind := range []*wire.Kind{kindOf(gvk), nil} {
				t.Run(fmt.Sprintf("%v %s/%v", e, gvk, kind != nil), func(t *testing.T) {
					test(t, e, gvk, kind, objects)
				})
			}
		}
	}
}

// checkRead compares an object that was read. One whose kind was taken from its bytes
// must equal one whose kind was given, which is compared completely.
func checkRead(tb testing.TB, o *wire.Object, gvk schema.GroupVersionKind, e wire.Encoding, kind *wire.Kind, body []byte) {
	tb.Helper()
	if kind != nil {
		wantEqual(tb, "Kind", wire.KindOf(o), kind)
		checkObject(tb, o, gvk, e, body)
		return
	}
	typed, err := wire.NewObject(bare(tb, e, body), e, kindOf(gvk))
	must(tb, err)
	if !wire.Same(o, typed) || o.Key() != typed.Key() {
		tb.Errorf("%v without a kind is %v", typed, o)
	}
}

func TestReadObject_readsEveryKind(t *testing.T) {
	forAllKinds(t, func(t *testing.T, e wire.Encoding, gvk schema.GroupVersionKind, kind *wire.Kind, objects []runtime.Object) {
		for _, object := range objects {
			body := encode(t, e, gvk.GroupVersion(), object)
			o, err := wire.ReadObject(iotest.HalfReader(bytes.NewReader(body)), e, kind)
			must(t, err)
			checkRead(t, o, gvk, e, kind, body)
		}
	})
}

func TestListReader_readsEveryKind(t *testing.T) {
	lists := 0
	forAllKinds(t, func(t *testing.T, e wire.Encoding, gvk schema.GroupVersionKind, kind *wire.Kind, objects []runtime.Object) {
		list, ok := newList(t, gvk, objects)
		if !ok {
			t.Skip("has no list")
		}
		lists++
		body := encode(t, e, gvk.GroupVersion(), list)
		l := wire.NewListReader(bytes.NewReader(body), e, kind)
		for _, object := range objects {
			o, err := l.Next()
			must(t, err)
			checkRead(t, o, gvk, e, kind, encode(t, e, gvk.GroupVersion(), object))
		}
		wantEnd(t, l)
	})
	if lists < 100 && !raceEnabled {
		t.Errorf("only %d lists", lists)
	}
}

func wantEnd(tb testing.TB, l *wire.ListReader) {
	tb.Helper()
	for range 2 {
		if o, err := l.Next(); o != nil || !errors.Is(err, io.EOF) {
			tb.Fatalf("after the last object come %v, %v", o, err)
		}
	}
	wantEqual(tb, "Meta", l.Meta(), wire.ListMeta{ResourceVersion: "4711", Continue: "next\"page", RemainingItemCount: 12})
}

func TestWatchReader_readsEveryKind(t *testing.T) {
	types := []watch.EventType{watch.Added, watch.Modified, watch.Deleted}
	forAllKinds(t, func(t *testing.T, e wire.Encoding, gvk schema.GroupVersionKind, kind *wire.Kind, objects []runtime.Object) {
		var events []watch.Event
		for i, object := range objects {
			events = append(events, watch.Event{Type: types[i], Object: object})
		}
		bookmark := kindOf(gvk).New()
		bookmark.(metav1.Object).SetResourceVersion("815")
		bookmark.(metav1.Object).SetAnnotations(map[string]string{"a": "b", "k8s.io/initial-events-end": "true", "z": "c"})
		plain := kindOf(gvk).New()
		plain.(metav1.Object).SetResourceVersion("816")
		events = append(events, watch.Event{Type: watch.Bookmark, Object: bookmark}, watch.Event{Type: watch.Bookmark, Object: plain})
		body := encodeWatch(t, e, gvk.GroupVersion(), events)
		w := wire.NewWatchReader(iotest.OneByteReader(bytes.NewReader(body)), e, kind)
		for i, object := range objects {
			ev, err := w.Next()
			must(t, err)
			wantEqual(t, "Type", ev.Type.String(), string(types[i]))
			wantEqual(t, "Version", ev.Version, object.(metav1.Object).GetResourceVersion())
			checkRead(t, ev.Object, gvk, e, kind, encode(t, e, gvk.GroupVersion(), object))
		}
		for _, want := range []wire.Event{{Type: wire.Bookmark, Version: "815", InitialEnd: true}, {Type: wire.Bookmark, Version: "816"}} {
			ev, err := w.Next()
			must(t, err)
			wantEqual(t, "bookmark", ev, want)
		}
		for range 2 {
			if ev, err := w.Next(); !errors.Is(err, io.EOF) {
				t.Fatalf("after the last event come %v, %v", ev, err)
			}
		}
	})
}
