// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/wire"
)

// benchmark runs a benchmark with one pod in each encoding.
func benchmark(b *testing.B, run func(b *testing.B, e wire.Encoding, raw []byte)) {
	for _, e := range encodings {
		raw := podBytes(b, e, 1)
		b.Run(e.String(), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			run(b, e, raw)
		})
	}
}

func BenchmarkNewObject(b *testing.B) {
	benchmark(b, func(b *testing.B, e wire.Encoding, raw []byte) {
		for b.Loop() {
			if _, err := wire.NewObject(raw, e, podKind); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkListReader measures one object of a long list.
func BenchmarkListReader(b *testing.B) {
	for _, e := range encodings {
		const n = 1000
		body := podList(b, e, n)
		b.Run(e.String(), func(b *testing.B) {
			b.SetBytes(int64(len(body) / n))
			b.ReportAllocs()
			l := wire.NewListReader(bytes.NewReader(body), e, podKind)
			for b.Loop() {
				_, err := l.Next()
				if errors.Is(err, io.EOF) {
					l = wire.NewListReader(bytes.NewReader(body), e, podKind)
				} else if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWatchReader measures one event.
func BenchmarkWatchReader(b *testing.B) {
	for _, e := range encodings {
		const n = 1000
		var events []watch.Event
		for i := range n {
			events = append(events, watch.Event{Type: watch.Modified, Object: newPod(i)})
		}
		body := encodeWatch(b, e, corev1.SchemeGroupVersion, events)
		b.Run(e.String(), func(b *testing.B) {
			b.SetBytes(int64(len(body) / n))
			b.ReportAllocs()
			w := wire.NewWatchReader(bytes.NewReader(body), e, podKind)
			for b.Loop() {
				_, err := w.Next()
				if errors.Is(err, io.EOF) {
					w = wire.NewWatchReader(bytes.NewReader(body), e, podKind)
				} else if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLabel(b *testing.B) {
	benchmark(b, func(b *testing.B, e wire.Encoding, _ []byte) {
		o := podObject(b, e, 1)
		for b.Loop() {
			if _, ok := o.Label("tier"); !ok {
				b.Fatal("no label")
			}
		}
	})
}

func BenchmarkDecodeFresh(b *testing.B) {
	b.Run("Pod", func(b *testing.B) { benchmarkDecode[*corev1.Pod](b) })
	b.Run("Unstructured", func(b *testing.B) { benchmarkDecode[*unstructured.Unstructured](b) })
	b.Run("PartialObjectMetadata", func(b *testing.B) { benchmarkDecode[*metav1.PartialObjectMetadata](b) })
}

func benchmarkDecode[T wire.Pointer[P], P any](b *testing.B) {
	benchmark(b, func(b *testing.B, e wire.Encoding, _ []byte) {
		o := podObject(b, e, 1)
		for b.Loop() {
			if _, err := wire.DecodeFresh[T](o); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDecode_held measures Decode for a value that a caller holds.
func BenchmarkDecode_held(b *testing.B) {
	benchmark(b, func(b *testing.B, e wire.Encoding, _ []byte) {
		o := podObject(b, e, 1)
		held, err := wire.Decode[*corev1.Pod](o)
		must(b, err)
		for b.Loop() {
			if p, err := wire.Decode[*corev1.Pod](o); err != nil || p != held {
				b.Fatal(p, err)
			}
		}
	})
}
