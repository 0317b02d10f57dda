// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klauspost/compress/s2"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/wire"
)

func benchObjects(b *testing.B, n int) []*wire.Object {
	kind := &wire.Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		New:              func() runtime.Object { return &corev1.Pod{} },
	}
	w := kubetest.Workload{}
	var all []*wire.Object
	for i := range n {
		o, err := wire.Encode(w.Pod(i), wire.Protobuf, kind)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func BenchmarkBlock(b *testing.B) {
	objects := benchObjects(b, 48)
	for name, f := range map[string]BlockForm{"json": {}, "protobuf": {Form: Form{Encoding: Protobuf}}} {
		blk := &block{texts: map[BlockForm]*text{}}
		t, _ := blk.makeLocked(objects, f, true)
		raw, _ := t.open()
		b.Logf("%s: %d bytes, s2 %d, better %d, gzip %d", name, t.length/48, len(t.packed)/48,
			len(s2.EncodeBetter(nil, raw))/48, len(Deflate(raw).deflated)/48)
		for what, keep := range map[string]bool{"first": false, "make": true} {
			b.Run(name+"/"+what, func(b *testing.B) {
				for range b.N {
					blk.makeLocked(objects, f, keep)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/48, "ns/object")
			})
		}
		b.Run(name+"/open", func(b *testing.B) {
			for range b.N {
				_, release := t.open()
				release()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/48, "ns/object")
		})
		b.Run(name+"/gzip", func(b *testing.B) {
			for range b.N {
				Deflate(raw)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/48, "ns/object")
		})
	}
}
