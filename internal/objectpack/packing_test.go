// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack_test

import (
	"bytes"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// workloadPod returns a pod of a workload, in which ten pods in turn are similar, with a
// version and a message.
func workloadPod(tb testing.TB, n int, version uint64, message string) *wire.Object {
	tb.Helper()
	pod := kubetest.Workload{}.Pod(n)
	pod.ResourceVersion, pod.Status.Message = fmt.Sprint(version), message
	o, err := wire.Encode(pod, wire.Protobuf, wiretest.PodKind)
	wiretest.Must(tb, err)
	return o
}

// workloadPacker returns a packer that has seen enough pods of the workload.
func workloadPacker(tb testing.TB) *objectpack.Packer {
	tb.Helper()
	p := objectpack.NewPacker(0)
	for n := range 300 {
		p.Pack(workloadPod(tb, n*7, 1, ""), nil)
	}
	return p
}

func TestPacker_storesStatesAsDifferences(t *testing.T) {
	p := workloadPacker(t)
	last := workloadPod(t, 1, 1, "first")
	p.Pack(last, nil)
	states, bodies := []*wire.Object{last}, [][]byte{bytes.Clone(last.Bytes())}
	for version := uint64(2); version < 20; version++ {
		o := workloadPod(t, 1, version*1000, fmt.Sprint("message ", version))
		body := bytes.Clone(o.Bytes())
		p.Pack(o, last)
		if own := objectpack.DataSize(o); own > 64 {
			t.Errorf("state %d takes %d bytes of its own", version, own)
		}
		wiretest.WantEqual(t, "length", o.Length(), len(body))
		if o.Size() < states[0].Size() {
			t.Errorf("state %d has a size of %d, without the state that it keeps, which has %d", version, o.Size(),
				states[0].Size())
		}
		last, states, bodies = o, append(states, o), append(bodies, body)
	}
	for i, o := range states {
		if !bytes.Equal(o.Bytes(), bodies[i]) {
			t.Fatalf("state %d is not what it was", i)
		}
	}
	p.Settle(last, nil)
	wiretest.WantEqual(t, "settled", objectpack.Dense(last), true)
	wiretest.WantEqual(t, "the same bytes", bytes.Equal(last.Bytes(), bodies[len(bodies)-1]), true)
}

func TestPacker_storesSimilarObjectsAsDifferences(t *testing.T) {
	p := workloadPacker(t)
	var near *wire.Object
	var alone, after int
	for n := range 200 {
		o := workloadPod(t, n, 5, "")
		body := bytes.Clone(o.Bytes())
		other := workloadPod(t, n, 5, "")
		p.Pack(o, nil)
		p.Settle(o, near)
		p.Settle(other, nil)
		if !o.Packed() || !bytes.Equal(o.Bytes(), body) || !wire.Same(o, other) {
			t.Fatalf("pod %d is not what it was", n)
		}
		alone, after = alone+objectpack.DataSize(other), after+objectpack.DataSize(o)
		near = o
	}
	t.Logf("%d bytes, alone %d", after/200, alone/200)
	if after > alone*2/3 {
		t.Errorf("similar objects take %d bytes each, alone they take %d", after/200, alone/200)
	}
}

// TestPacker_differenceOutlivesItsBase packs an object again with another dictionary after
// the state and the neighbour that it differs from are gone.
func TestPacker_differenceOutlivesItsBase(t *testing.T) {
	p := workloadPacker(t)
	first, second := workloadPod(t, 5001, 5, ""), workloadPod(t, 5002, 5, "")
	want := bytes.Clone(second.Bytes())
	p.Settle(first, nil)
	p.Settle(second, first)
	if objectpack.DataSize(second) > objectpack.DataSize(first)*3/4 {
		t.Fatal("the second pod is not stored as a difference")
	}
	q := workloadPacker(t)
	q.Settle(first, nil)
	wiretest.WantEqual(t, "bytes", bytes.Equal(second.Bytes(), want), true)
	q.Settle(second, first)
	wiretest.WantEqual(t, "bytes after another dictionary", bytes.Equal(second.Bytes(), want), true)
	pod, err := wire.Decode[*corev1.Pod](second)
	wiretest.Must(t, err)
	wiretest.WantEqual(t, "name", pod.Name, second.Name())
}

func BenchmarkPack(b *testing.B) {
	p := workloadPacker(b)
	last := workloadPod(b, 1, 1, "first")
	p.Pack(last, nil)
	raw := workloadPod(b, 1, 2, "next").Bytes()
	for _, name := range []string{"alone", "difference"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var before *wire.Object
			if name == "difference" {
				before = last
			}
			for b.Loop() {
				o, err := wire.NewObject(raw, wire.Protobuf, wiretest.PodKind)
				if err != nil {
					b.Fatal(err)
				}
				p.Pack(o, before)
			}
		})
	}
}

func BenchmarkSettle(b *testing.B) {
	p := workloadPacker(b)
	first := workloadPod(b, 0, 5, "")
	p.Settle(first, nil)
	raw := workloadPod(b, 1, 5, "").Bytes()
	for _, name := range []string{"alone", "difference"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var near *wire.Object
			if name == "difference" {
				near = first
			}
			for b.Loop() {
				o, err := wire.NewObject(raw, wire.Protobuf, wiretest.PodKind)
				if err != nil {
					b.Fatal(err)
				}
				p.Settle(o, near)
			}
		})
	}
}
