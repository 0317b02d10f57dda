// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package transcode_test

import (
	"reflect"
	"testing"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/transcode"
)

// TestHasUnknownFields_ofEveryKind checks objects of all kinds: as the types of this
// program encode them they have no unknown fields, and with one more field they do.
func TestHasUnknownFields_ofEveryKind(t *testing.T) {
	maker := specimen.New(specimen.Rand(t))
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for _, gvk := range specimen.Kinds(t) {
		for range rounds {
			raw := marshal(t, maker.Object(gvk))
			if transcode.HasUnknownFields(typeOf(gvk), raw) {
				t.Fatalf("%s: its own type writes unknown fields: %q", gvk, raw)
			}
			if !transcode.HasUnknownFields(typeOf(gvk), append(raw, "\xd2\x3e\x03new"...)) { // field 1002
				t.Errorf("%s: an unknown field is not noticed", gvk)
			}
		}
	}
}

// TestHasUnknownFields_within checks that an unknown field is found at any depth.
func TestHasUnknownFields_within(t *testing.T) {
	const field = "\xd2\x3e\x03new"
	whole := podMessage(t, 1)
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
		if got := transcode.HasUnknownFields(podType, append(whole[:len(whole):len(whole)], c.add...)); got != c.want {
			t.Errorf("an unknown field in %s: %t, want %t", name, got, c.want)
		}
	}
	for _, typ := range []reflect.Type{nil, podType.Elem(), reflect.TypeFor[*string]()} {
		if transcode.HasUnknownFields(typ, append(whole, field...)) {
			t.Errorf("%v has unknown fields", typ)
		}
	}
}

func BenchmarkHasUnknownFields(b *testing.B) {
	raw := podMessage(b, 1)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if transcode.HasUnknownFields(podType, raw) {
			b.Fatal("it has")
		}
	}
}
