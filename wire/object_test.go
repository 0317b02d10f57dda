// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/wire"
)

func TestNewObject_addsTheType(t *testing.T) {
	for raw, want := range map[string]string{
		`{"metadata":{"name":"x"}}`:                                       `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}`,
		" { \"metadata\":{\"name\":\"x\"}}\n":                             `{"kind":"Pod","apiVersion":"v1", "metadata":{"name":"x"}}`,
		`{"metadata":{"name":"x"},"kind":"Pod"}`:                          `{"apiVersion":"v1","metadata":{"name":"x"},"kind":"Pod"}`,
		`{"apiVersion":"v1","metadata":{"name":"x"}}`:                     `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}`,
		`{"apiVersion":"m/v1","kind":"Partial","metadata":{"name":"x"}}`:  `{"apiVersion":"m/v1","kind":"Partial","metadata":{"name":"x"}}`,
		`{"k\u0069nd":"A","\u0061piVersion":"b","metadata":{"name":"x"}}`: `{"k\u0069nd":"A","\u0061piVersion":"b","metadata":{"name":"x"}}`,
	} {
		o, err := wire.NewObject([]byte(raw), wire.JSON, podKind)
		must(t, err)
		wantEqual(t, "bytes", string(o.Bytes()), want)
		wantEqual(t, "kind", wire.KindOf(o), podKind)
	}
}

func TestNewObject_readsEscapes(t *testing.T) {
	o, err := wire.NewObject([]byte(`{"\u006detadata":{"n\u0061me":"\u0061\"\\","namespace":"\ud83d\ude00\ud83d","resourceVersion":"\u0037"}}`), wire.JSON, podKind)
	must(t, err)
	wantEqual(t, "name", o.Name(), `a"\`)
	wantEqual(t, "namespace", o.Namespace(), "😀\ufffd")
	wantEqual(t, "version", o.Version(), 7)
}

func TestNewObject_versions(t *testing.T) {
	for text, want := range map[string]uint64{
		"1": 1, "18446744073709551615": 1<<64 - 1, "18446744073709551616": 0, "99999999999999999999": 0, "": 0, "0": 0, "01": 0, "+1": 0, "-1": 0,
		"1.0": 0, "1e3": 0, "abc": 0, "184467440737095516150": 0, " 1": 0,
	} {
		for _, e := range encodings {
			pod := newPod(1)
			pod.ResourceVersion = text
			o, err := wire.Encode(pod, e, podKind)
			must(t, err)
			wantEqual(t, "version of "+text, o.Version(), want)
			wantEqual(t, "resourceVersion", o.ResourceVersion(), text)
		}
	}
}

func TestNewObject_refuses(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		e    wire.Encoding
		kind *wire.Kind
	}{
		"no kind":            {`{"metadata":{"name":"x"}}`, wire.JSON, nil},
		"protobuf, no kind":  {string(podBytes(t, wire.Protobuf, 1)), wire.Protobuf, nil},
		"two objects":        {`{"metadata":{"name":"x"}}{}`, wire.JSON, podKind},
		"half an object":     {`{"metadata":{"name":"x"}`, wire.JSON, podKind},
		"empty":              {"", wire.JSON, podKind},
		"empty, protobuf":    {"", wire.Protobuf, podKind},
		"no encoding":        {`{"metadata":{"name":"x"}}`, 0, podKind},
		"malformed protobuf": {"\x0a\x05\x0a\x0aabc", wire.Protobuf, podKind},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := wire.NewObject([]byte(c.raw), c.e, c.kind)
			if failed := (*wire.ObjectError)(nil); !errors.As(err, &failed) {
				t.Errorf("got %v, %v", o, err)
			}
			if o, err := wire.ReadObject(strings.NewReader(c.raw), c.e, c.kind); err == nil {
				t.Errorf("read %v", o)
			}
		})
	}
}

func TestObject_keyDoesNotPinTheBytes(t *testing.T) {
	for _, e := range encodings {
		o := podObject(t, e, 1)
		raw := o.Bytes()
		from, to := uintptr(unsafe.Pointer(&raw[0])), uintptr(unsafe.Pointer(&raw[len(raw)-1]))
		if at := uintptr(unsafe.Pointer(unsafe.StringData(o.Key()))); at >= from && at <= to {
			t.Errorf("%v: the key is in the bytes", e)
		}
	}
}

func TestObject_allocations(t *testing.T) {
	for _, e := range encodings {
		raw := podBytes(t, e, 1)
		wantAllocs(t, e, "NewObject", 3, func() { // the caller allocates the bytes
			if _, err := wire.NewObject(raw, e, podKind); err != nil {
				t.Fatal(err)
			}
		})
		list := wire.NewListReader(bytes.NewReader(podList(t, e, 300)), e, podKind)
		for range 100 {
			_, err := list.Next()
			must(t, err)
		}
		wantAllocs(t, e, "ListReader.Next", 4, func() { // bytes, Object, body, key
			if _, err := list.Next(); err != nil {
				t.Fatal(err)
			}
		})
		var events []watch.Event
		for n := range 300 {
			events = append(events, watch.Event{Type: watch.Added, Object: newPod(n)})
		}
		w := wire.NewWatchReader(bytes.NewReader(encodeWatch(t, e, corev1.SchemeGroupVersion, events)), e, podKind)
		for range 100 {
			_, err := w.Next()
			must(t, err)
		}
		wantAllocs(t, e, "WatchReader.Next", 5, func() { // also the version
			if _, err := w.Next(); err != nil {
				t.Fatal(err)
			}
		})
		o := podObject(t, e, 1)
		wantAllocs(t, e, "Label", 1, func() { o.Label("tier") })
		wantAllocs(t, e, "Label that is not there", 0, func() { o.Label("no") })
		pod, err := wire.Decode[*corev1.Pod](o)
		must(t, err)
		wantAllocs(t, e, "Decode of what is held", 0, func() {
			if p, _ := wire.Decode[*corev1.Pod](o); p != pod {
				t.Fatal("another pod")
			}
		})
		wantEqual(t, "cap of the bytes", cap(o.Bytes()) <= len(o.Bytes())+1024, true)
	}
	wantEqual(t, "size of an Object", unsafe.Sizeof(wire.Object{}) <= 80, true)
}

func wantAllocs(tb testing.TB, e wire.Encoding, what string, want float64, f func()) {
	tb.Helper()
	if got := testing.AllocsPerRun(100, f); got > want && !raceEnabled {
		tb.Errorf("%v: %s allocates %v times, want %v", e, what, got, want)
	}
}
