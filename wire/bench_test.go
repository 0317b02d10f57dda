// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// benchmark runs a benchmark with one pod in each encoding.
func benchmark(b *testing.B, run func(b *testing.B, e wire.Encoding, raw []byte)) {
	for _, e := range wiretest.Encodings {
		raw := wiretest.PodBytes(b, e, 1)
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
			if _, err := wire.NewObject(raw, e, wiretest.PodKind); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	benchmark(b, func(b *testing.B, e wire.Encoding, _ []byte) {
		pod, err := wire.DecodeFresh[*corev1.Pod](wiretest.PodObject(b, e, 1))
		wiretest.Must(b, err)
		for b.Loop() {
			if _, err := wire.Encode(pod, e, wiretest.PodKind); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLabel(b *testing.B) {
	benchmark(b, func(b *testing.B, e wire.Encoding, _ []byte) {
		o := wiretest.PodObject(b, e, 1)
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
		o := wiretest.PodObject(b, e, 1)
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
		o := wiretest.PodObject(b, e, 1)
		held, err := wire.Decode[*corev1.Pod](o)
		wiretest.Must(b, err)
		for b.Loop() {
			if p, err := wire.Decode[*corev1.Pod](o); err != nil || p != held {
				b.Fatal(p, err)
			}
		}
	})
}
