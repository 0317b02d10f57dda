// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"runtime"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/wire"
)

const imageQuestion = `object.spec.containers.exists(c, c.image.endsWith(":1.2.3")) && object.metadata.labels.app == "x"`

// benchmarkObject returns a pod with the fields of a pod that runs.
func benchmarkObject(b *testing.B, encoding wire.Encoding) *wire.Object {
	b.Helper()
	typed := kubetest.Workload{}.Pod(0)
	kind := &wire.Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, New: newOf(&corev1.Pod{}),
	}
	object, err := wire.Encode(typed, encoding, kind)
	if err != nil {
		b.Fatal(err)
	}
	return object
}

// loop runs a benchmark, and reports its CPU time too: wall time means little on a busy machine.
func loop(b *testing.B, run func() error) {
	b.Helper()
	b.ReportAllocs()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	n := 0
	for b.Loop() {
		n++
		if err := run(); err != nil {
			b.Fatal(err)
		}
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	spent := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(spent)/float64(n), "cpu-ns/op")
}

func BenchmarkEvaluate(b *testing.B) {
	e, around := compiled(b, imageQuestion, true), surroundings()
	for name, encoding := range map[string]wire.Encoding{"json": wire.JSON, "protobuf": wire.Protobuf} {
		object := benchmarkObject(b, encoding)
		b.Run("decode-"+name, func(b *testing.B) {
			loop(b, func() error {
				_, err := e.Evaluate(b.Context(), NewRow(object, around))
				return err
			})
			b.ReportMetric(float64(object.Length()), "bytes/object")
		})
	}
	decoded := decode(b, benchmarkObject(b, wire.JSON))
	b.Run("decoded", func(b *testing.B) {
		loop(b, func() error {
			_, err := e.Evaluate(b.Context(), NewDecodedRow(decoded, around))
			return err
		})
	})
	for name, text := range map[string]string{
		"known-images": imageQuestion, "known-ip": `object.status.podIP == "10.3.4.5"`,
	} {
		e := compiled(b, text, true)
		known, _ := e.From(e.Paths())
		values := make([]any, len(e.Paths()))
		for i, p := range e.Paths() {
			values[i], _ = extract(decoded, p, 0)
		}
		b.Run(name, func(b *testing.B) {
			loop(b, func() error {
				_, err := known.Evaluate(b.Context(), around, values)
				return err
			})
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.Run("image", func(b *testing.B) {
		loop(b, func() error {
			_, err := Compile(imageQuestion, Options{Condition: true})
			return err
		})
	})
	e, s := compiled(b, `object.spec.parts.exists(p, p.image == "a") && object.spec.size > 3`, true), widget(b, "newer.json")
	b.Run("check", func(b *testing.B) {
		loop(b, func() error {
			_, err := e.Check([]*Schema{s})
			return err
		})
	})
	b.Run("environment", func(b *testing.B) {
		loop(b, func() error {
			_, err := checking(s.typeOf(s.root, s.name), s)
			return err
		})
	})
}

// The memory of a compiled expression and of a schema's environment.
func BenchmarkMemory(b *testing.B) {
	const n = 200
	measure := func(name string, create func() any) {
		b.Run(name, func(b *testing.B) {
			var before, after runtime.MemStats
			kept := make([]any, n)
			create()
			for range b.N {
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range kept {
					kept[i] = create()
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "bytes/each")
			runtime.KeepAlive(kept)
		})
	}
	measure("expression", func() any { return compiled(b, imageQuestion, true) })
	measure("environment", func() any {
		s := widget(b, "newer.json")
		if _, err := s.environment(); err != nil {
			b.Fatal(err)
		}
		return s
	})
}
