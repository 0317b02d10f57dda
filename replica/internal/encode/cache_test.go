// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// noisyPod returns a pod that cannot be compressed much.
func noisyPod(t testing.TB, random *rand.Rand, name string, version int) *wire.Object {
	t.Helper()
	kind, _ := kube.KindOf(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	noise := make([]byte, 1500)
	for i := range noise {
		noise[i] = 'a' + byte(random.Uint32()%26)
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       "n",
			ResourceVersion: fmt.Sprint(version),
			Annotations:     map[string]string{"noise": string(noise)},
		},
	}
	// Managed fields are most of a real pod, and compress well.
	for range 4 {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: "m", FieldsV1: metav1.NewFieldsV1(fmt.Sprintf("{\"f:%01000d\":{}}", 0)),
		})
	}
	o, err := wire.Encode(p, wire.Protobuf, kind)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Blocks and frames stay within their memory bounds, even if the store has dropped their
// objects: for objects that are listed twice, and for objects of which one in each block
// changes, in two forms of which one is not requested again.
func TestCaches_boundMemory(t *testing.T) {
	const bound = 2 << 20
	source := Source{"c", schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	forms := []BlockForm{{Form: Form{Encoding: Protobuf}}, {Form: Form{Encoding: Protobuf}, Events: true}}
	list := func(c *Blocks, objects []*wire.Object, forms ...BlockForm) {
		seq := func(yield func(string, *wire.Object) bool) {
			for _, o := range objects {
				if !yield(o.Key(), o) {
					return
				}
			}
		}
		for run := range Runs(seq) {
			for _, f := range append(forms, forms...) {
				if _, err := c.Part(source, run, f, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	pods := func(prefix string, n int) (all []*wire.Object) {
		for i := range n {
			all = append(all, noisyPod(t, random, fmt.Sprintf("%s-%05d", prefix, i), 1))
		}
		return all
	}
	logger := slog.New(slog.DiscardHandler)
	t.Run("dead objects", func(t *testing.T) {
		before, c := liveHeap(), NewBlocks(bound, logger)
		for generation := range 8 {
			list(c, pods(fmt.Sprint("job-", generation), 150), forms[0])
		}
		within(t, before, bound)
		runtime.KeepAlive(c)
	})
	t.Run("blocks before", func(t *testing.T) {
		objects := pods("web", 750)
		before, c := liveHeap(), NewBlocks(bound, logger)
		list(c, objects, forms...)
		for i := range objects {
			if i%10 == 0 {
				objects[i] = noisyPod(t, random, objects[i].Name(), 2)
			}
		}
		list(c, objects, forms[0])
		within(t, before, bound)
		runtime.KeepAlive(c)
		runtime.KeepAlive(objects)
	})
	t.Run("frames", func(t *testing.T) {
		before, c := liveHeap(), NewFrames(bound, logger)
		for i := range 750 {
			o := noisyPod(t, random, fmt.Sprint("web-", i), 1)
			// Metadata: a frame that is much smaller than the object.
			if _, err := c.Get(FrameKey{
				Object: o, Form: Form{Partial: true, Version: "v1"}, Event: stream.Deleted,
			}); err != nil {
				t.Fatal(err)
			}
		}
		within(t, before, bound)
		runtime.KeepAlive(c)
	})
}

func within(t *testing.T, before, bound int64) {
	t.Helper()
	if grown := liveHeap() - before; grown > bound*5/4 {
		t.Errorf("the heap grew by %d KB, want about %d KB at most", grown>>10, bound>>10)
	}
}
