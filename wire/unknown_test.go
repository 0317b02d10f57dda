// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/wire"
)

// No object of any kind has unknown fields as this program's own types write it, and each
// has with one field more, also packed.
func TestHasUnknownFields_ofEveryKind(t *testing.T) {
	r := newSeed(t)
	f := newFiller(r)
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for _, gvk := range objectKinds(t) {
		for range rounds {
			message, ok := fill(r, f, gvk).(interface{ Marshal() ([]byte, error) })
			if !ok {
				break
			}
			raw, err := message.Marshal()
			must(t, err)
			o, err := wire.NewObject(raw, wire.Protobuf, kindOf(gvk))
			must(t, err)
			if o.HasUnknownFields() {
				t.Fatalf("%s: its own type writes unknown fields: %q", gvk, raw)
			}
			newer, err := wire.NewObject(append(raw, "\xd2\x3e\x03new"...), wire.Protobuf, kindOf(gvk)) // field 1002
			must(t, err)
			if !newer.HasUnknownFields() {
				t.Errorf("%s: an unknown field is not noticed", gvk)
			}
		}
	}
}

// A field is noticed wherever it is.
func TestHasUnknownFields_within(t *testing.T) {
	const field = "\xd2\x3e\x03new"
	whole, err := newPod(1).Marshal()
	must(t, err)
	for name, c := range map[string]struct {
		add  string
		want bool
	}{
		"nothing":                  {"", false},
		"pod":                      {field, true},
		"a number":                 {"\xd0\x3e\x01", true},
		"metadata":                 {bytesField(1, field), true},
		"an owner":                 {bytesField(1, bytesField(13, field)), true},
		"spec":                     {bytesField(2, field), true},
		"a container":              {bytesField(2, bytesField(2, field)), true},
		"a container's probe":      {bytesField(2, bytesField(2, bytesField(10, bytesField(1, field)))), true},
		"status":                   {bytesField(3, field), true},
		"a known field once more":  {bytesField(2, bytesField(10, "node-2")), false},
		"a label once more":        {bytesField(1, mapEntry(11, "a", "b")), false},
		"what is malformed":        {bytesField(2, "\xff\xff"), false},
		"metadata, then malformed": {bytesField(1, field) + bytesField(2, "\xff\xff"), true},
	} {
		o, err := wire.NewObject(append(whole[:len(whole):len(whole)], c.add...), wire.Protobuf, podKind)
		must(t, err)
		if got := o.HasUnknownFields(); got != c.want {
			t.Errorf("an unknown field in %s: %t, want %t", name, got, c.want)
		}
	}
	inJSON := podObject(t, wire.JSON, 1)
	if inJSON.HasUnknownFields() {
		t.Error("JSON has unknown fields")
	}
	untyped, err := wire.NewObject(append(whole, field...), wire.Protobuf, &wire.Kind{GroupVersionKind: podKind.GroupVersionKind})
	must(t, err)
	if untyped.HasUnknownFields() {
		t.Error("a kind without a type has unknown fields")
	}
}

// AppendProtobuf converts objects in JSON to what their Go type writes.
func TestAppendProtobuf(t *testing.T) {
	for i := range 20 {
		pod := newPod(i)
		want, err := pod.Marshal()
		must(t, err)
		for _, e := range encodings {
			got, err := podObject(t, e, i).AppendProtobuf([]byte("before"))
			must(t, err)
			var again corev1.Pod
			must(t, again.Unmarshal(got[len("before"):]))
			again.TypeMeta = pod.TypeMeta
			text, err := again.Marshal()
			must(t, err)
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
		"wrong":   {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"w"},"spec":{"containers":"none"}}`, podKind},
	} {
		object, err := wire.NewObject([]byte(o.raw), wire.JSON, o.kind)
		must(t, err)
		if got, err := object.AppendProtobuf([]byte("before")); err == nil || string(got) != "before" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func BenchmarkHasUnknownFields(b *testing.B) {
	o := podObject(b, wire.Protobuf, 1)
	b.SetBytes(int64(len(o.Bytes())))
	for b.Loop() {
		if o.HasUnknownFields() {
			b.Fatal("it has")
		}
	}
}
