// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack_test

import (
	"bytes"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// watchPods returns pods as a watch has sent them.
func watchPods(tb testing.TB, e wire.Encoding, n int) []*wire.Object {
	tb.Helper()
	var events []watch.Event
	for i := range n {
		events = append(events, watch.Event{Type: watch.Modified, Object: wiretest.NewPod(i)})
	}
	w := stream.NewWatchReader(bytes.NewReader(wiretest.EncodeWatch(tb, e, corev1.SchemeGroupVersion, events)), e,
		wiretest.PodKind)
	objects := make([]*wire.Object, n)
	for i := range objects {
		ev, err := w.Next()
		wiretest.Must(tb, err)
		objects[i] = ev.Object
	}
	return objects
}

func TestObject_recyclesItsBuffer(t *testing.T) {
	if wiretest.Race {
		t.Skip("a sync.Pool drops values at random")
	}
	p := objectpack.NewPacker(0)
	packedPods(t, p, wire.Protobuf, 100)
	used := 0
	for range 20 {
		o := watchPods(t, wire.Protobuf, 1)[0]
		at := objectpack.BufferOf(o)
		p.Pack(o, nil)
		if next := watchPods(t, wire.Protobuf, 1)[0]; objectpack.BufferOf(next) == at {
			used++
		}
	}
	if used < 10 {
		t.Errorf("%d of 20 buffers were used again", used)
	}
}

func TestUnify_sharesPackedBytes(t *testing.T) {
	for _, e := range wiretest.Encodings {
		p := objectpack.NewPacker(0)
		packedPods(t, p, e, 100)
		stored, arrived := wiretest.PodObject(t, e, 0), watchPods(t, e, 1)[0]
		wiretest.WantEqual(t, "the same, not packed", objectpack.Unify(stored, arrived) && !arrived.Packed(), true)
		p.Pack(stored, nil)
		other := wiretest.PodObject(t, e, 1)
		if objectpack.Unify(stored, other) || other.Packed() {
			t.Errorf("%v: another object shares the bytes", e)
		}
		wiretest.WantEqual(t, "the same", objectpack.Unify(stored, arrived), true)
		wiretest.WantEqual(t, "buffer", objectpack.BufferOf(arrived), objectpack.BufferOf(stored))
		watchPods(t, e, 2)
		want := wiretest.PodObject(t, e, 0)
		tier, _ := want.Label("tier")
		got, ok := arrived.Label("tier")
		wiretest.WantEqual(t, "label", got, tier)
		wiretest.WantEqual(t, "has the label", ok, true)
		wiretest.WantEqual(t, "still the same", wire.Same(arrived, want), true)
	}
}

func TestObject_keepsSharedBytes(t *testing.T) {
	for _, e := range wiretest.Encodings {
		p := objectpack.NewPacker(0)
		packedPods(t, p, e, 100)
		for i, o := range watchPods(t, e, 50) {
			shared := o.Bytes()
			want := bytes.Clone(shared)
			p.Pack(o, nil)
			watchPods(t, e, 2) // which would use the buffer
			if !o.Packed() || !bytes.Equal(shared, want) || !bytes.Equal(o.Bytes(), want) {
				t.Fatalf("%v: the bytes of pod %d have changed", e, i)
			}
		}
	}
}

// TestObject_keepsBytesOfItsCaller packs an object whose bytes belong to the caller too.
func TestObject_keepsBytesOfItsCaller(t *testing.T) {
	p := objectpack.NewPacker(0)
	packedPods(t, p, wire.Protobuf, 100)
	raw := wiretest.PodBytes(t, wire.Protobuf, 7)
	want := bytes.Clone(raw)
	o, err := wire.NewObject(raw, wire.Protobuf, wiretest.PodKind)
	wiretest.Must(t, err)
	p.Pack(o, nil)
	watchPods(t, wire.Protobuf, 3)
	wiretest.WantEqual(t, "packed", o.Packed(), true)
	wiretest.WantEqual(t, "the same bytes", bytes.Equal(raw, want), true)
}

// TestObject_readersOfARecycledBuffer reads objects while they are packed and their
// buffers are used for others.
func TestObject_readersOfARecycledBuffer(t *testing.T) {
	for _, e := range wiretest.Encodings {
		p := objectpack.NewPacker(0)
		packedPods(t, p, e, 100)
		n := 400
		if wiretest.Race {
			n = 100
		}
		want := make([]*wire.Object, n)
		for i := range want {
			want[i] = wiretest.PodObject(t, e, i)
		}
		objects := watchPods(t, e, n)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for i, o := range objects {
					for k := range 4 {
						pod, err := wire.DecodeFresh[*corev1.Pod](o)
						if err != nil || pod.Name != o.Name() || !wire.Same(o, want[i]) {
							t.Errorf("%v: pod %d is not what it was: %v", e, i, err)
							return
						}
						if k == 3 && i%7 == 0 && !bytes.Equal(o.Bytes(), want[i].Bytes()) {
							t.Errorf("%v: the bytes of pod %d are not what they were", e, i)
							return
						}
					}
				}
			})
		}
		for _, o := range objects {
			p.Pack(o, nil)
			watchPods(t, e, 1)
		}
		wg.Wait()
	}
}
