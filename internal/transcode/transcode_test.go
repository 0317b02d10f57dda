// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package transcode_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/transcode"
)

var podType = reflect.TypeFor[*corev1.Pod]()

// typeOf returns the Go type of a kind of the scheme.
func typeOf(gvk schema.GroupVersionKind) reflect.Type {
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		panic(err)
	}
	return reflect.TypeOf(o)
}

// marshal returns the message of an object.
func marshal(tb testing.TB, o runtime.Object) []byte {
	tb.Helper()
	raw, err := o.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func podMessage(tb testing.TB, n int) []byte {
	tb.Helper()
	return marshal(tb, kubetest.Workload{}.Pod(n))
}

// decodedJSON returns what AppendJSON must append.
func decodedJSON(t reflect.Type, raw []byte) (text []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	value := reflect.New(t.Elem()).Interface()
	if err := value.(protobuf.Message).Unmarshal(raw); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// sameJSON compares AppendJSON with the JSON of the decoded message: both are the same,
// or both fail. It reports whether there is JSON.
func sameJSON(tb testing.TB, t reflect.Type, raw []byte) bool {
	tb.Helper()
	const before = "before"
	got, err := transcode.AppendJSON([]byte(before), t, raw)
	want, wantErr := decodedJSON(t, raw)
	if (err != nil) != (wantErr != nil) {
		tb.Fatalf("the error is %v, want %v: %x", err, wantErr, raw)
	}
	if string(got) != before+string(want) {
		tb.Fatalf("the JSON is\n%s, want\n%s: %x", got, want, raw)
	}
	return err == nil
}

// quickJSON is sameJSON for a message that must be transcoded without decoding.
func quickJSON(tb testing.TB, t reflect.Type, raw []byte) {
	tb.Helper()
	if !sameJSON(tb, t, raw) {
		tb.Fatalf("%v has no JSON: %x", t, raw)
	}
	if _, ok := transcode.Transcode(nil, t, raw); !ok {
		tb.Errorf("%v had to be decoded: %x", t, raw)
	}
}

// patched appends a second metadata to the message of an object, as wire.Object.With
// does.
func patched(raw []byte, version, annotation, value string) []byte {
	var meta string
	if version != "" {
		meta += bytesField(6, version)
	}
	if annotation != "" {
		meta += mapEntry(12, annotation, value)
	}
	return append(bytes.Clone(raw), bytesField(1, meta)...)
}

func TestAppendJSON_isThatOfTheDecodedMessage(t *testing.T) {
	r := specimen.Rand(t)
	maker := specimen.New(r)
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for _, gvk := range specimen.Kinds(t) {
		typ := typeOf(gvk)
		t.Run(gvk.String(), func(t *testing.T) {
			quickJSON(t, typ, nil)
			for range rounds {
				raw := marshal(t, maker.Object(gvk))
				quickJSON(t, typ, raw)
				quickJSON(t, typ, patched(raw, "77", "a", "<b>"))
				for range 10 {
					sameJSON(t, typ, spoil(r, raw))
				}
			}
			for decoded := range transcode.Decoded(typ) {
				// This type contains itself.
				if !strings.HasSuffix(decoded, ".CompositePodGroupTemplate") {
					t.Errorf("%s is decoded", decoded)
				}
			}
		})
	}
}

// spoil changes or removes some bytes.
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
		raw := podMessage(t, i)
		quickJSON(t, podType, raw)
		quickJSON(t, podType, patched(raw, "12", "", ""))
		once := patched(raw, "", "watershed.dev/cluster", "eu-1")
		quickJSON(t, podType, once)
		// One annotation sorts before all others, the other replaces itself.
		quickJSON(t, podType, patched(patched(once, "", "a", ""), "9", "watershed.dev/cluster", "us-1"))
	}
}

// TestAppendJSON_atTheSameTime makes plans in several goroutines concurrently.
func TestAppendJSON_atTheSameTime(t *testing.T) {
	kinds := specimen.Kinds(t)[:25]
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			maker := specimen.New(rand.New(rand.NewSource(int64(i))))
			for _, gvk := range kinds {
				raw, err := maker.Object(gvk).(interface{ Marshal() ([]byte, error) }).Marshal()
				if err != nil {
					t.Error(err)
					return
				}
				got, err := transcode.AppendJSON(nil, typeOf(gvk), raw)
				want, wantErr := decodedJSON(typeOf(gvk), raw)
				if err != nil || wantErr != nil || !bytes.Equal(got, want) {
					t.Errorf("JSON is %s, %v, want %s, %v", got, err, want, wantErr)
				}
			}
		})
	}
	wait.Wait()
}

// TestCanonical_isWrittenUnchanged checks that a quantity that counts as canonical is
// written as the same text.
func TestCanonical_isWrittenUnchanged(t *testing.T) {
	r := specimen.Rand(t)
	numbers := []string{
		"", "0", "00", "01", "-0", "-", "+1", "1.5", "1e3", "999999999999999999", "1000000000000000000",
		"9223372036854775807",
	}
	for _, n := range []int{
		1, 7, 8, 10, 100, 500, 512, 1000, 1023, 1024, 1025, 2048, 10000, 10240, 128000, 1 << 20, 99999, 99999999,
		99999999999,
	} {
		numbers = append(numbers, strconv.Itoa(n), strconv.Itoa(-n))
	}
	for range 500 {
		numbers = append(numbers, strconv.FormatInt(r.Int63()>>r.Intn(63), 10))
	}
	quick := 0
	for _, number := range numbers {
		for _, suffix := range []string{
			"", "n", "u", "m", "k", "K", "M", "G", "T", "P", "E", "e", "e3", "E3", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
			"i", "x", " ", ".",
		} {
			text := number + suffix
			canonical := transcode.Canonical(text)
			q, err := resource.ParseQuantity(text)
			if canonical {
				quick++
			}
			if err != nil {
				if canonical {
					t.Errorf("%s is canonical and cannot be parsed: %v", text, err)
				}
				continue
			}
			written, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			if canonical && string(written) != `"`+text+`"` {
				t.Errorf("%s is written as %s", text, written)
			}
		}
	}
	if quick < 1000 {
		t.Errorf("only %d quantities are canonical", quick)
	}
	for _, usual := range []string{
		"0", "1", "-1", "250m", "110", "1k", "128Mi", "1536Mi", "16Gi", "65536Ki", "32781720Ki", "95491281146",
	} {
		if q := resource.MustParse(usual); transcode.Canonical(usual) != (q.String() == usual) {
			t.Errorf("canonical(%s) is %v", usual, transcode.Canonical(usual))
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	raw := podMessage(b, 1)
	sameJSON(b, podType, raw) // makes the plan
	for name, raw := range map[string][]byte{"pod": raw, "patched": patched(raw, "", "watershed.dev/cluster", "eu-1")} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			var text []byte
			for b.Loop() {
				var err error
				if text, err = transcode.AppendJSON(text[:0], podType, raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("decoded", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodedJSON(podType, raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
