// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// TestLabel_thatComesTwice reads labels that an object has twice. The last one counts, as
// in a decoded object, whether the object is packed or not.
func TestLabel_thatComesTwice(t *testing.T) {
	meta := &metav1.ObjectMeta{Name: "w", Namespace: "a", ResourceVersion: "7", Labels: map[string]string{"a": "1"}}
	message, err := (&corev1.Pod{ObjectMeta: *meta, Spec: wiretest.NewPod(1).Spec}).Marshal()
	wiretest.Must(t, err)
	entry := "\n\x01a\x12\x012" // a: "2"
	text := strings.Repeat("some text ", 40)
	packers := map[wire.Encoding]*objectpack.Packer{}
	for _, e := range wiretest.Encodings {
		packers[e] = objectpack.NewPacker(0)
		packedPods(t, packers[e], e, 50) // samples for a dictionary
	}
	for name, object := range map[string]struct {
		raw  string
		e    wire.Encoding
		want map[string]string
	}{
		"protobuf":      {string(message) + "\n\x08\x5a\x06" + entry, wire.Protobuf, map[string]string{"a": "2"}},
		"JSON":          {`{"a":"1","b":"x","a":"2"}`, wire.JSON, map[string]string{"a": "2", "b": "x"}},
		"JSON, escaped": {`{"a":"1","\u0061":"2","b":"x"}`, wire.JSON, map[string]string{"a": "2", "b": "x"}},
		"JSON, null":    {`{"a":"1","a":null}`, wire.JSON, map[string]string{"a": ""}},
		"JSON, 3 times": {
			`{"a":"1","b":"1","a":"longer","b":"2","a":"3"}`, wire.JSON, map[string]string{"a": "3", "b": "2"},
		},
		"JSON, the same": {`{"a":"1","a":"1"}`, wire.JSON, map[string]string{"a": "1"}},
	} {
		raw := object.raw
		if object.e == wire.JSON {
			raw = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"w","namespace":"a","resourceVersion":"7","labels":` + raw + `},"spec":{"nodeName":"` + text + `"}}`
		}
		p := packers[object.e]
		o, err := wire.NewObject([]byte(raw), object.e, wiretest.PodKind)
		wiretest.Must(t, err)
		decoded, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
		wiretest.Must(t, err)
		if !maps.Equal(decoded.Labels, object.want) {
			t.Fatalf("%s: decoded labels are %v", name, decoded.Labels)
		}
		for _, change := range []func(){func() {}, func() { p.Pack(o, nil) }} {
			change()
			got, calls := map[string]string{}, 0
			o.EachLabel(func(key, value string) {
				got[key] = value
				calls++
			})
			if !maps.Equal(got, object.want) || calls != len(object.want) {
				t.Errorf("%s, packed %t: EachLabel has %v in %d calls, want %v", name, o.Packed(), got, calls,
					object.want)
			}
			for key, want := range object.want {
				if value, ok := o.Label(key); value != want || !ok {
					t.Errorf("%s, packed %t: label %s is %q %t, want %q", name, o.Packed(), key, value, ok, want)
				}
			}
		}
		if !o.Packed() {
			t.Errorf("%s: it was not packed", name)
		}
	}
}

// TestEachLabel_isEveryLabel reads the labels of objects as they were sent, packed and
// packed densely, and compares them with those they were made with.
func TestEachLabel_isEveryLabel(t *testing.T) {
	sets := []map[string]string{
		nil,
		{"app": "web"},
		{"app": "", "example.org/tier": "front", "long": strings.Repeat("x", 200)},
		{"quoted": `"\` + "\n\té", "e": "é"},
	}
	for _, e := range wiretest.Encodings {
		p := objectpack.NewPacker(0)
		packedPods(t, p, e, 500) // samples for a dictionary
		packed := 0
		for n, set := range sets {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint(n), ResourceVersion: "7", Labels: set},
			}
			pod.Spec.Containers = []corev1.Container{{Name: "main", Image: strings.Repeat("registry.example.org/", 20)}}
			o, err := wire.Encode(pod, e, wiretest.PodKind)
			wiretest.Must(t, err)
			length := len(o.Bytes())
			for _, change := range []func(){func() {}, func() { p.Pack(o, nil) }, func() { p.Settle(o, nil) }} {
				change()
				got, calls := map[string]string{}, 0
				o.EachLabel(func(key, value string) {
					got[key] = value
					calls++
				})
				if !maps.Equal(got, set) || calls != len(set) {
					t.Errorf("%v: labels are %v, told %d times, want %v", e, got, calls, set)
				}
				if n := o.Length(); n < length*9/10 || n > length*11/10 {
					t.Errorf("%v: the length is %d, packed %t: %d", e, length, o.Packed(), n)
				}
			}
			if o.Packed() {
				packed++
			}
		}
		if packed == 0 {
			t.Errorf("%v: nothing was packed", e)
		}
	}
}
