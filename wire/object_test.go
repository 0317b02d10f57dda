// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
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
		o, err := wire.NewObject([]byte(raw), wire.JSON, wiretest.PodKind)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "bytes", string(o.Bytes()), want)
		wiretest.WantEqual(t, "kind", o.Kind(), wiretest.PodKind)
	}
}

func TestNewObject_readsEscapes(t *testing.T) {
	o, err := wire.NewObject(
		[]byte(
			`{"\u006detadata":{"n\u0061me":"\u0061\"\\","namespace":"\ud83d\ude00\ud83d","resourceVersion":"\u0037"}}`,
		), wire.JSON, wiretest.PodKind,
	)
	wiretest.Must(t, err)
	wiretest.WantEqual(t, "name", o.Name(), `a"\`)
	wiretest.WantEqual(t, "namespace", o.Namespace(), "😀\ufffd")
	wiretest.WantEqual(t, "version", o.Version(), 7)
}

func TestNewObject_versions(t *testing.T) {
	for text, want := range map[string]uint64{
		"1": 1, "18446744073709551615": 1<<64 - 1, "18446744073709551616": 0, "99999999999999999999": 0, "": 0, "0": 0,
		"01": 0, "+1": 0, "-1": 0,
		"1.0": 0, "1e3": 0, "abc": 0, "184467440737095516150": 0, " 1": 0,
	} {
		for _, e := range wiretest.Encodings {
			pod := wiretest.NewPod(1)
			pod.ResourceVersion = text
			o, err := wire.Encode(pod, e, wiretest.PodKind)
			wiretest.Must(t, err)
			wiretest.WantEqual(t, "version of "+text, o.Version(), want)
			wiretest.WantEqual(t, "resourceVersion", o.ResourceVersion(), text)
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
		"protobuf, no kind":  {string(wiretest.PodBytes(t, wire.Protobuf, 1)), wire.Protobuf, nil},
		"two objects":        {`{"metadata":{"name":"x"}}{}`, wire.JSON, wiretest.PodKind},
		"half an object":     {`{"metadata":{"name":"x"}`, wire.JSON, wiretest.PodKind},
		"empty":              {"", wire.JSON, wiretest.PodKind},
		"empty, protobuf":    {"", wire.Protobuf, wiretest.PodKind},
		"no encoding":        {`{"metadata":{"name":"x"}}`, 0, wiretest.PodKind},
		"malformed protobuf": {"\x0a\x05\x0a\x0aabc", wire.Protobuf, wiretest.PodKind},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := wire.NewObject([]byte(c.raw), c.e, c.kind)
			if failed := (*wire.ObjectError)(nil); !errors.As(err, &failed) {
				t.Errorf("got %v, %v", o, err)
			}
			if o, err := stream.ReadObject(strings.NewReader(c.raw), c.e, c.kind); err == nil {
				t.Errorf("read %v", o)
			}
		})
	}
}

func TestObject_keyDoesNotPinTheBytes(t *testing.T) {
	for _, e := range wiretest.Encodings {
		o := wiretest.PodObject(t, e, 1)
		raw := o.Bytes()
		from, to := uintptr(unsafe.Pointer(&raw[0])), uintptr(unsafe.Pointer(&raw[len(raw)-1]))
		if at := uintptr(unsafe.Pointer(unsafe.StringData(o.Key()))); at >= from && at <= to {
			t.Errorf("%v: the key is in the bytes", e)
		}
	}
}

func TestObject_allocations(t *testing.T) {
	for _, e := range wiretest.Encodings {
		raw := wiretest.PodBytes(t, e, 1)
		wiretest.WantAllocs(t, e, "NewObject", 3, func() { // the caller allocates the bytes
			if _, err := wire.NewObject(raw, e, wiretest.PodKind); err != nil {
				t.Fatal(err)
			}
		})
		o := wiretest.PodObject(t, e, 1)
		wiretest.WantAllocs(t, e, "Label", 1, func() { o.Label("tier") })
		wiretest.WantAllocs(t, e, "Label that is not there", 0, func() { o.Label("no") })
		pod, err := wire.Decode[*corev1.Pod](o)
		wiretest.Must(t, err)
		wiretest.WantAllocs(t, e, "Decode of what is held", 0, func() {
			if p, _ := wire.Decode[*corev1.Pod](o); p != pod {
				t.Fatal("another pod")
			}
		})
		wiretest.WantEqual(t, "cap of the bytes", cap(o.Bytes()) <= len(o.Bytes())+1024, true)
	}
	wiretest.WantEqual(t, "size of an Object", unsafe.Sizeof(wire.Object{}) <= 80, true)
}
