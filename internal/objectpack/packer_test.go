// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectpack_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// TestPacker_changesNothing packs random objects of every kind in both ways, and compares
// everything that can be read from them with what apimachinery reads.
func TestPacker_changesNothing(t *testing.T) {
	r := specimen.Rand(t)
	f := specimen.New(r)
	packed, dense := 0, 0
	kinds, wantPacked, wantDense := wiretest.ObjectKinds(t), 200, 20
	if wiretest.Race {
		// How many objects are dense depends on the random kinds' contents: here 6 on average.
		kinds, wantPacked, wantDense = kinds[:8], 20, 1
	}
	for _, gvk := range kinds {
		for _, e := range wiretest.Encodings {
			p := objectpack.NewPacker(0)
			var objects []*wire.Object
			var bodies [][]byte
			for range 12 {
				body := wiretest.Encode(t, e, gvk.GroupVersion(), f.Object(gvk))
				o, err := stream.ReadObject(strings.NewReader(string(body)), e, wiretest.KindOf(gvk))
				wiretest.Must(t, err)
				objects, bodies = append(objects, o), append(bodies, body)
				p.Pack(o, nil)
			}
			if !objectpack.Train(p, objects[0]) {
				continue // kinds that have hardly any content
			}
			for i, o := range objects {
				p.Pack(o, nil)
				if o.Packed() {
					packed++
				}
				if i%2 == 0 {
					p.Settle(o, nil)
				}
				if objectpack.Dense(o) {
					dense++
				}
				wiretest.CheckObject(t, o, gvk, e, bodies[i])
				fresh, err := stream.ReadObject(strings.NewReader(string(bodies[i])), e, wiretest.KindOf(gvk))
				wiretest.Must(t, err)
				if !wire.Same(o, fresh) || !wire.Same(fresh, o) {
					t.Errorf("%v %v: a packed object is not the same as it was", gvk, e)
				}
			}
			if t.Failed() {
				t.Fatalf("%v %v", gvk, e)
			}
		}
	}
	t.Logf("%d packed, %d of them densely", packed, dense)
	if packed < wantPacked || dense < wantDense {
		t.Errorf("%d were packed, %d of them densely: hardly a test", packed, dense)
	}
}

// packedPods returns distinct pods, as in a cluster.
func packedPods(tb testing.TB, p *objectpack.Packer, e wire.Encoding, n int) []*wire.Object {
	tb.Helper()
	objects := make([]*wire.Object, n)
	for i := range objects {
		objects[i] = wiretest.PodObject(tb, e, i)
		p.Pack(objects[i], nil)
	}
	return objects
}

func size(objects []*wire.Object) (n int) {
	for _, o := range objects {
		n += o.Size()
	}
	return n
}

func TestPacker_sizes(t *testing.T) {
	if wiretest.Race {
		t.Skip("one goroutine, and twenty times slower with the race detector: make e2e runs it")
	}
	for _, e := range wiretest.Encodings {
		plain := size(packedPods(t, objectpack.NewPacker(0), e, 4)) / 4 // too few for a dictionary
		p := objectpack.NewPacker(0)
		objects := packedPods(t, p, e, 1000)
		fast := size(objects[500:]) / 500
		for _, o := range objects {
			p.Settle(o, nil)
		}
		dense := size(objects) / 1000
		t.Logf("%v: %d bytes, %d packed, %d settled", e, plain, fast, dense)
		if fast > plain/3 || dense > fast*9/10 {
			t.Errorf("%v: %d bytes, %d packed, %d settled", e, plain, fast, dense)
		}
		for i, o := range objects {
			if !o.Packed() {
				t.Fatalf("%v: object %d was left out", e, i)
			}
		}
	}
}

func TestPacker_leavesAloneWhatGainsNothing(t *testing.T) {
	p := objectpack.NewPacker(0)
	small, err := wire.Encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, wire.Protobuf, wiretest.PodKind)
	wiretest.Must(t, err)
	packedPods(t, p, wire.Protobuf, 100)
	p.Pack(small, nil)
	p.Settle(small, nil)
	if small.Packed() {
		t.Error("an object of a few bytes was packed")
	}
	noise := make([]byte, 4000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	kind := &wire.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")}
	var random []*wire.Object
	for i := range 60 {
		noise = append(noise[1:], byte(rand.Uint32()))
		o, err := wire.Encode(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)},
			Data: map[string][]byte{"x": rotated(noise, i*61)}}, wire.Protobuf, kind)
		wiretest.Must(t, err)
		before := string(o.Bytes())
		p.Pack(o, nil)
		p.Settle(o, nil)
		if string(o.Bytes()) != before {
			t.Fatal("noise was not kept")
		}
		random = append(random, o)
	}
	if got := size(random) / len(random); got > 4300 {
		t.Errorf("noise of 4,000 bytes takes %d", got)
	}
}

// rotated scrambles bytes so that no two results have much in common.
func rotated(b []byte, seed int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(seed)))
	out := make([]byte, len(b))
	for i, at := range r.Perm(len(b)) {
		out[i] = b[at]
	}
	return out
}

// customObject returns an object whose shape depends on the generation.
func customObject(tb testing.TB, generation, n int) *wire.Object {
	tb.Helper()
	kind := &wire.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}}
	var spec strings.Builder
	r := rand.New(rand.NewPCG(7, uint64(generation)))
	for field := range 40 {
		fmt.Fprintf(&spec, ",\"field%d%x\":\"value-%x-%d\"", field, r.Uint64(), r.Uint64(), n%(field+1))
	}
	o, err := wire.NewObject(
		fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w-%d"}%s}`, n,
			spec.String()), wire.JSON, kind,
	)
	wiretest.Must(tb, err)
	return o
}

// TestPacker_learnsAgain changes the shape of all objects: the dictionary must be
// replaced, and the old one freed when no object needs it.
func TestPacker_learnsAgain(t *testing.T) {
	if wiretest.Race {
		t.Skip("one goroutine, and twenty times slower with the race detector: make e2e runs it")
	}
	p := objectpack.NewPacker(0)
	var objects []*wire.Object
	for n := range 2000 {
		o := customObject(t, 1, n)
		p.Pack(o, nil)
		objects = append(objects, o)
	}
	before := size(objects[1000:]) / 1000
	for _, o := range objects {
		p.Settle(o, nil)
	}
	var freed atomic.Bool
	objectpack.OnFreed(objects[0], func() { freed.Store(true) })
	first := fmt.Sprintf("%p", p.Newest(objects[0])) // without keeping it alive

	var after []*wire.Object
	for n := range 10_000 {
		o := customObject(t, 2, n)
		p.Pack(o, nil)
		if n >= 9_000 {
			after = append(after, o)
		}
	}
	if fmt.Sprintf("%p", p.Newest(objects[0])) == first {
		t.Fatal("the dictionary was not replaced")
	}
	if got := size(after) / len(after); got > before*3/2 {
		t.Errorf("objects of the new shape take %d bytes, those of the old took %d", got, before)
	}
	for range 3 {
		runtime.GC()
	}
	if freed.Load() {
		t.Fatal("the dictionary was freed while objects need it")
	}
	for _, o := range objects {
		want := string(o.Bytes())
		p.Settle(o, nil)
		if string(o.Bytes()) != want {
			t.Fatal("an object changed with its dictionary")
		}
	}
	wiretest.Until(t, func() bool {
		runtime.GC()
		return freed.Load()
	})
}

func TestPacker_readersSeeTheObjectAllTheTime(t *testing.T) {
	p := objectpack.NewPacker(0)
	packedPods(t, p, wire.JSON, 100)
	objects := make([]*wire.Object, 60)
	for i := range objects {
		objects[i] = wiretest.PodObject(t, wire.JSON, i)
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				n := i % len(objects)
				o := objects[n]
				pod, err := wire.Decode[*corev1.Pod](o)
				if err != nil || pod.Name != o.Name() {
					t.Errorf("pod %d: %v", n, err)
					return
				}
				if tier, ok := o.Label("tier"); !ok || tier != pod.Labels["tier"] {
					t.Errorf("pod %d has label %q, %v", n, tier, ok)
					return
				}
			}
		})
	}
	for _, o := range objects {
		p.Pack(o, nil)
		time.Sleep(50 * time.Microsecond) // readers see the object before and after it is settled
		p.Settle(o, nil)
	}
	close(stop)
	readers.Wait()
}

func TestPacker_labelsAreShared(t *testing.T) {
	p := objectpack.NewPacker(0)
	objects := packedPods(t, p, wire.Protobuf, 100)
	o := objects[99]
	want, _ := wiretest.PodObject(t, wire.Protobuf, 99).Label("tier")
	wiretest.WantAllocs(t, wire.Protobuf, "Label of a packed object", 0, func() {
		if got, ok := o.Label("tier"); !ok || got != want {
			t.Fatalf("label is %q, %v", got, ok)
		}
	})
	if _, ok := o.Label("tie"); ok {
		t.Error("found a label that is not there")
	}
}

// TestPack_largeObjects packs objects that hardly get smaller and are larger than a
// dictionary can use.
func TestPack_largeObjects(t *testing.T) {
	if wiretest.Race {
		t.Skip("one goroutine, and twenty times slower with the race detector: make e2e runs it")
	}
	p := objectpack.NewPacker(0)
	rng := rand.New(rand.NewPCG(1, 2))
	kind := &wire.Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
		New:              func() apiruntime.Object { return &corev1.Secret{} },
	}
	for i := range 80 {
		data := make([]byte, 1<<20)
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		o, err := wire.Encode(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i), ResourceVersion: "1"},
			Data:       map[string][]byte{"d": data},
		}, wire.Protobuf, kind)
		if err != nil {
			t.Fatal(err)
		}
		was := bytes.Clone(o.Bytes())
		p.Pack(o, nil)
		p.Settle(o, nil)
		if !bytes.Equal(o.Bytes(), was) {
			t.Fatal("packed object is another one")
		}
	}
	if size := p.DictionaryBytes(); size > 8<<20 {
		t.Errorf("dictionaries and samples take %d bytes", size)
	}
}
