// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
)

func TestReaders_allocations(t *testing.T) {
	for _, e := range wiretest.Encodings {
		list := stream.NewListReader(bytes.NewReader(wiretest.PodList(t, e, 300)), e, wiretest.PodKind)
		for range 100 {
			_, err := list.Next()
			wiretest.Must(t, err)
		}
		wiretest.WantAllocs(t, e, "ListReader.Next", 4, func() { // bytes, Object, body, key
			if _, err := list.Next(); err != nil {
				t.Fatal(err)
			}
		})
		var events []watch.Event
		for n := range 300 {
			events = append(events, watch.Event{Type: watch.Added, Object: wiretest.NewPod(n)})
		}
		w := stream.NewWatchReader(bytes.NewReader(wiretest.EncodeWatch(t, e, corev1.SchemeGroupVersion, events)), e,
			wiretest.PodKind)
		for range 100 {
			_, err := w.Next()
			wiretest.Must(t, err)
		}
		wiretest.WantAllocs(t, e, "WatchReader.Next", 5, func() { // also the version
			if _, err := w.Next(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// BenchmarkListReader measures one object of a long list.
func BenchmarkListReader(b *testing.B) {
	for _, e := range wiretest.Encodings {
		const n = 1000
		body := wiretest.PodList(b, e, n)
		b.Run(e.String(), func(b *testing.B) {
			b.SetBytes(int64(len(body) / n))
			b.ReportAllocs()
			l := stream.NewListReader(bytes.NewReader(body), e, wiretest.PodKind)
			for b.Loop() {
				_, err := l.Next()
				if errors.Is(err, io.EOF) {
					l = stream.NewListReader(bytes.NewReader(body), e, wiretest.PodKind)
				} else if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWatchReader measures one event.
func BenchmarkWatchReader(b *testing.B) {
	for _, e := range wiretest.Encodings {
		const n = 1000
		var events []watch.Event
		for i := range n {
			events = append(events, watch.Event{Type: watch.Modified, Object: wiretest.NewPod(i)})
		}
		body := wiretest.EncodeWatch(b, e, corev1.SchemeGroupVersion, events)
		b.Run(e.String(), func(b *testing.B) {
			b.SetBytes(int64(len(body) / n))
			b.ReportAllocs()
			w := stream.NewWatchReader(bytes.NewReader(body), e, wiretest.PodKind)
			for b.Loop() {
				_, err := w.Next()
				if errors.Is(err, io.EOF) {
					w = stream.NewWatchReader(bytes.NewReader(body), e, wiretest.PodKind)
				} else if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
