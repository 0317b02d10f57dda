// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// wantDecodedJSON compares AppendJSON with the JSON of the decoded object.
func wantDecodedJSON(tb testing.TB, o *wire.Object) {
	tb.Helper()
	got, err := o.AppendJSON([]byte("before"))
	wiretest.Must(tb, err)
	value := o.Kind().New()
	wiretest.Must(tb, o.DecodeInto(value))
	value.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	want, err := json.Marshal(value)
	wiretest.Must(tb, err)
	wiretest.WantEqual(tb, "JSON", string(got), "before"+string(want))
}

func TestAppendJSON_ofProtobuf(t *testing.T) {
	for i := range 20 {
		o := wiretest.PodObject(t, wire.Protobuf, i)
		wantDecodedJSON(t, o)
		wantDecodedJSON(t, o.With(wire.Patch{Version: 12}))
		patched := o.With(wire.Patch{Annotation: "watershed.dev/cluster", Value: "eu-1"})
		wantDecodedJSON(t, patched)
		wantDecodedJSON(t, patched.With(wire.Patch{Version: 9, Annotation: "watershed.dev/cluster", Value: "us-1"}))
	}
}

func TestAppendJSON_ofJSON(t *testing.T) {
	o := wiretest.PodObject(t, wire.JSON, 1)
	got, err := o.AppendJSON([]byte("before"))
	wiretest.Must(t, err)
	wiretest.WantEqual(t, "JSON", string(got), "before"+string(o.Bytes()))
}

func TestAppendJSON_ofPackedObjects(t *testing.T) {
	packer := objectpack.NewPacker(0)
	var packed *wire.Object
	for i := range 100 {
		packed = wiretest.PodObject(t, wire.Protobuf, i)
		packer.Pack(packed, nil)
	}
	if !packed.Packed() {
		t.Fatal("it is not packed")
	}
	wantDecodedJSON(t, packed)
}

func TestAppendTypedJSON(t *testing.T) {
	for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
		o := wiretest.PodObject(t, e, 1)
		got, err := o.AppendTypedJSON([]byte("before"))
		wiretest.Must(t, err)
		value, err := wire.DecodeFresh[*corev1.Pod](o)
		wiretest.Must(t, err)
		want, err := json.Marshal(value)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, e.String(), string(got), "before"+string(want))
	}
}

// An object whose kind has no Go type, and one whose message is malformed, cannot be
// written as JSON.
func TestAppendJSON_failures(t *testing.T) {
	raw := wiretest.PodBytes(t, wire.Protobuf, 1)
	untyped, err := wire.NewObject(raw, wire.Protobuf, &wire.Kind{GroupVersionKind: wiretest.PodKind.GroupVersionKind})
	wiretest.Must(t, err)
	malformed, err := wire.NewObject(append(raw, "\x12\x02\xff\xff"...), wire.Protobuf, wiretest.PodKind)
	wiretest.Must(t, err)
	for name, o := range map[string]*wire.Object{"untyped": untyped, "malformed": malformed} {
		var failed *wire.ObjectError
		for _, appendTo := range []func([]byte) ([]byte, error){o.AppendJSON, o.AppendTypedJSON} {
			if b, err := appendTo([]byte("before")); !errors.As(err, &failed) || string(b) != "before" {
				t.Errorf("%s: %s, %v", name, b, err)
			}
		}
	}
}

func TestAppendJSON_allocatesNothing(t *testing.T) {
	if wiretest.Race {
		t.Skip("the race detector allocates")
	}
	o := wiretest.PodObject(t, wire.Protobuf, 1).With(wire.Patch{Annotation: "a", Value: "b"})
	b := make([]byte, 0, 64<<10)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := o.AppendJSON(b); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

func TestHasUnknownFields(t *testing.T) {
	raw := wiretest.PodBytes(t, wire.Protobuf, 1)
	newer := append(raw[:len(raw):len(raw)], "\xd2\x3e\x03new"...) // field 1002
	for name, c := range map[string]struct {
		raw  []byte
		e    wire.Encoding
		kind *wire.Kind
		want bool
	}{
		"protobuf": {raw, wire.Protobuf, wiretest.PodKind, false},
		"newer":    {newer, wire.Protobuf, wiretest.PodKind, true},
		"newer, untyped kind": {
			newer, wire.Protobuf, &wire.Kind{GroupVersionKind: wiretest.PodKind.GroupVersionKind}, false,
		},
		"JSON": {wiretest.PodBytes(t, wire.JSON, 1), wire.JSON, wiretest.PodKind, false},
	} {
		o, err := wire.NewObject(c.raw, c.e, c.kind)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, name, o.HasUnknownFields(), c.want)
	}
}

// AppendProtobuf converts objects in JSON to what their Go type writes.
func TestAppendProtobuf(t *testing.T) {
	for i := range 20 {
		pod := wiretest.NewPod(i)
		want, err := pod.Marshal()
		wiretest.Must(t, err)
		for _, e := range wiretest.Encodings {
			got, err := wiretest.PodObject(t, e, i).AppendProtobuf([]byte("before"))
			wiretest.Must(t, err)
			var again corev1.Pod
			wiretest.Must(t, again.Unmarshal(got[len("before"):]))
			again.TypeMeta = pod.TypeMeta
			text, err := again.Marshal()
			wiretest.Must(t, err)
			if string(text) != string(want) || string(got[:6]) != "before" {
				t.Errorf("%v: pod %d differs", e, i)
			}
		}
	}
	for name, o := range map[string]struct {
		raw  string
		kind *wire.Kind
	}{
		"no type": {`{"apiVersion":"e/v1","kind":"W","metadata":{"name":"w"}}`, nil},
		"wrong": {
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"w"},"spec":{"containers":"none"}}`, wiretest.PodKind,
		},
	} {
		object, err := wire.NewObject([]byte(o.raw), wire.JSON, o.kind)
		wiretest.Must(t, err)
		if got, err := object.AppendProtobuf([]byte("before")); err == nil || string(got) != "before" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
