// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/wire"
)

// decodedJSON is what AppendJSON must append.
func decodedJSON(o *wire.Object) ([]byte, error) {
	value := o.Kind().New()
	if err := o.DecodeInto(value); err != nil {
		return nil, err
	}
	value.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return json.Marshal(value)
}

// sameJSON compares AppendJSON with the JSON of the decoded object: both are the same,
// or there is none. It reports whether there is.
func sameJSON(tb testing.TB, o *wire.Object) bool {
	tb.Helper()
	const before = "before"
	got, err := o.AppendJSON([]byte(before))
	want, wantErr := decodedJSON(o)
	if (err != nil) != (wantErr != nil) {
		tb.Fatalf("the error is %v, want %v: %x", err, wantErr, o.Bytes())
	}
	var failed *wire.ObjectError
	if err != nil && !errors.As(err, &failed) {
		tb.Errorf("%v is no ObjectError", err)
	}
	if string(got) != before+string(want) {
		tb.Fatalf("the JSON is\n%s, want\n%s: %x", got, want, o.Bytes())
	}
	return err == nil
}

// quickJSON is sameJSON for an object that must not be decoded for it.
func quickJSON(tb testing.TB, o *wire.Object) {
	tb.Helper()
	if !sameJSON(tb, o) {
		tb.Fatalf("%v has no JSON", o)
	}
	if _, ok := wire.Transcode(nil, o.Bytes(), o.Kind()); !ok {
		tb.Errorf("%v had to be decoded: %x", o, o.Bytes())
	}
}

func TestAppendJSON_isThatOfTheDecodedObject(t *testing.T) {
	r := newSeed(t)
	filler := newFiller(r)
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for _, gvk := range objectKinds(t) {
		kind := kindOf(gvk)
		t.Run(gvk.String(), func(t *testing.T) {
			quickJSON(t, wire.Message(nil, kind))
			for range rounds {
				o, err := wire.Encode(fill(r, filler, gvk), wire.Protobuf, kind)
				must(t, err)
				quickJSON(t, o)
				quickJSON(t, o.With(wire.Patch{Version: 77, Annotation: "a", Value: "<b>"}))
				for range 10 {
					sameJSON(t, wire.Message(spoil(r, o.Bytes()), kind))
				}
			}
			for foreign := range wire.Foreign(kind) {
				// It contains itself.
				if !strings.HasSuffix(foreign, ".CompositePodGroupTemplate") {
					t.Errorf("%s is decoded", foreign)
				}
			}
		})
	}
}

// spoil changes some bytes, or leaves some out.
func spoil(r *rand.Rand, raw []byte) []byte {
	raw = bytes.Clone(raw)
	for range 1 + r.Intn(3) {
		at := r.Intn(len(raw))
		switch r.Intn(4) {
		case 0:
			raw[at] = byte(r.Intn(256))
		case 1:
			raw[at] ^= 1 << r.Intn(8)
		case 2:
			raw = append(raw[:at], raw[min(at+r.Intn(4), len(raw)):]...)
		case 3:
			raw = append(raw, raw[at:]...)
		}
		if len(raw) == 0 {
			return raw
		}
	}
	return raw
}

func TestAppendJSON_ofPods(t *testing.T) {
	for i := range 100 {
		workload := kubetest.Workload{}
		for _, pod := range []*corev1.Pod{newPod(i), workload.Pod(i)} {
			o, err := wire.Encode(pod, wire.Protobuf, podKind)
			must(t, err)
			quickJSON(t, o)
			quickJSON(t, o.With(wire.Patch{Version: 12}))
			patched := o.With(wire.Patch{Annotation: "watershed.dev/cluster", Value: "eu-1"})
			quickJSON(t, patched)
			// It comes before all others, and overrules itself.
			quickJSON(t, patched.With(wire.Patch{Annotation: "a", Value: ""}).With(wire.Patch{Version: 9, Annotation: "watershed.dev/cluster", Value: "us-1"}))
		}
	}
}

func TestAppendJSON_ofJSON(t *testing.T) {
	o := podObject(t, wire.JSON, 1)
	got, err := o.AppendJSON([]byte("before"))
	must(t, err)
	wantEqual(t, "JSON", string(got), "before"+string(o.Bytes()))
}

func TestAppendJSON_ofPackedObjects(t *testing.T) {
	packer := wire.NewPacker()
	var packed *wire.Object
	for i := range 100 {
		packed = podObject(t, wire.Protobuf, i)
		packer.Pack(packed, nil)
	}
	if !wire.Train(packer, packed) {
		t.Fatal("there is no dictionary")
	}
	packer.Pack(packed, nil)
	if !packed.Packed() {
		t.Fatal("it is not packed")
	}
	quickJSON(t, packed)
}

// TestAppendJSON_atTheSameTime makes plans while others make them.
func TestAppendJSON_atTheSameTime(t *testing.T) {
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			r := rand.New(rand.NewSource(int64(i)))
			filler := newFiller(r)
			for _, gvk := range objectKinds(t)[:25] {
				o, err := wire.Encode(fill(r, filler, gvk), wire.Protobuf, kindOf(gvk))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := o.AppendJSON(nil)
				want, wantErr := decodedJSON(o)
				if err != nil || wantErr != nil || !bytes.Equal(got, want) {
					t.Errorf("JSON is %s, %v, want %s, %v", got, err, want, wantErr)
				}
			}
		})
	}
	wait.Wait()
}

func TestAppendJSON_allocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	o := podObject(t, wire.Protobuf, 1).With(wire.Patch{Annotation: "a", Value: "b"})
	b := make([]byte, 0, 64<<10)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := o.AppendJSON(b); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

// TestCanonical_isWhatQuantitiesAre: what is taken for canonical is written as it is.
func TestCanonical_isWhatQuantitiesAre(t *testing.T) {
	r := newSeed(t)
	numbers := []string{"", "0", "00", "01", "-0", "-", "+1", "1.5", "1e3", "999999999999999999", "1000000000000000000", "9223372036854775807"}
	for _, n := range []int{1, 7, 8, 10, 100, 500, 512, 1000, 1023, 1024, 1025, 2048, 10000, 10240, 128000, 1 << 20, 99999, 99999999, 99999999999} {
		numbers = append(numbers, strconv.Itoa(n), strconv.Itoa(-n))
	}
	for range 500 {
		numbers = append(numbers, strconv.FormatInt(r.Int63()>>r.Intn(63), 10))
	}
	quick := 0
	for _, number := range numbers {
		for _, suffix := range []string{"", "n", "u", "m", "k", "K", "M", "G", "T", "P", "E", "e", "e3", "E3", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "i", "x", " ", "."} {
			text := number + suffix
			canonical := wire.Canonical(text)
			q, err := resource.ParseQuantity(text)
			if canonical {
				quick++
				must(t, err)
			}
			if err != nil {
				continue
			}
			written, err := json.Marshal(q)
			must(t, err)
			if canonical && string(written) != `"`+text+`"` {
				t.Errorf("%s is written as %s", text, written)
			}
		}
	}
	if quick < 1000 {
		t.Errorf("only %d quantities are canonical", quick)
	}
	for _, usual := range []string{"0", "1", "-1", "250m", "110", "1k", "128Mi", "1536Mi", "16Gi", "65536Ki", "32781720Ki", "95491281146"} {
		if q := resource.MustParse(usual); wire.Canonical(usual) != (q.String() == usual) {
			t.Errorf("canonical(%s) is %v", usual, wire.Canonical(usual))
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	o := podObject(b, wire.Protobuf, 1)
	sameJSON(b, o) // makes the plan
	for name, o := range map[string]*wire.Object{"pod": o, "patched": o.With(wire.Patch{Annotation: "watershed.dev/cluster", Value: "eu-1"})} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(o.Length()))
			b.ReportAllocs()
			var text []byte
			for b.Loop() {
				var err error
				if text, err = o.AppendJSON(text[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("decoded", func(b *testing.B) {
		b.SetBytes(int64(o.Length()))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodedJSON(o); err != nil {
				b.Fatal(err)
			}
		}
	})
}
