// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"errors"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// slim is a type that a user could define.
type slim struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
}

func TestDecode_anyType(t *testing.T) {
	for _, e := range wiretest.Encodings {
		o := wiretest.PodObject(t, e, 1)
		self, err := wire.Decode[*wire.Object](o)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "itself", self, o)

		s, err := wire.Decode[*slim](o)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "name", s.Metadata.Name, wiretest.NewPod(1).Name)
		wiretest.WantEqual(t, "node", s.Spec.NodeName, "node-7")
		wiretest.WantEqual(t, "kind", s.Kind, "Pod")

		m, err := wire.Decode[*map[string]any](o)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "kind", (*m)["kind"], any("Pod"))

		if _, err := wire.Decode[*struct{}](o); err != nil {
			t.Error(err)
		}
	}
}

func TestDecode_wrongTypeIsAnError(t *testing.T) {
	o := wiretest.PodObject(t, wire.Protobuf, 1)
	_, err := wire.Decode[*corev1.Service](o)
	if err == nil || !strings.Contains(err.Error(), "it is a *v1.Pod") {
		t.Error(err)
	}
	if _, err := wire.Decode[*int](wiretest.PodObject(t, wire.JSON, 1)); err == nil {
		t.Error("a pod is no int")
	}
	if _, err := wire.Decode[*int](o); err == nil {
		t.Error("a pod is no int")
	}

	untyped, err := wire.NewObject(o.Bytes(), wire.Protobuf, &wire.Kind{
		GroupVersionKind: wiretest.PodKind.GroupVersionKind,
	})
	wiretest.Must(t, err)
	if _, err := wire.Decode[*unstructured.Unstructured](untyped); err == nil ||
		!strings.Contains(err.Error(), "no Go type") {
		t.Error(err)
	}
	if _, err := wire.Decode[*slim](untyped); err == nil {
		t.Error("decoded without a type")
	}
	pod, err := wire.Decode[*corev1.Pod](untyped)
	wiretest.Must(t, err)
	wiretest.WantEqual(t, "name", pod.Name, wiretest.NewPod(1).Name)
	if failed := (*wire.ObjectError)(nil); !errors.As(func() error {
		_, err := wire.Decode[*slim](untyped)
		return err
	}(), &failed) || failed.Key != o.Key() {
		t.Errorf("the error does not say of what: %v", failed)
	}
}

type panicking struct{ metav1.PartialObjectMetadata }

func (*panicking) Unmarshal([]byte) error     { panic("protobuf") }
func (*panicking) UnmarshalJSON([]byte) error { panic("JSON") }

func TestDecode_panicIsAnError(t *testing.T) {
	gvk := wiretest.PodKind.GroupVersionKind
	for _, e := range wiretest.Encodings {
		o, err := wire.NewObject(wiretest.PodBytes(t, e, 1), e, &wire.Kind{
			GroupVersionKind: gvk, New: func() apiruntime.Object { return &panicking{} },
		})
		wiretest.Must(t, err)
		if _, err := wire.Decode[*panicking](o); err == nil ||
			!strings.Contains(err.Error(), "panic: "+e.String()) && !strings.Contains(err.Error(), "panic: protobuf") {
			t.Errorf("%v: %v", e, err)
		}
	}
}

func TestDecode_sharesWhatIsHeld(t *testing.T) {
	for _, e := range wiretest.Encodings {
		o := wiretest.PodObject(t, e, 1)
		first, err := wire.Decode[*corev1.Pod](o)
		wiretest.Must(t, err)
		meta, err := wire.Decode[*metav1.PartialObjectMetadata](o)
		wiretest.Must(t, err)
		for range 3 {
			runtime.GC()
			again, err := wire.Decode[*corev1.Pod](o)
			wiretest.Must(t, err)
			wiretest.WantEqual(t, "pod", again, first)
			metaAgain, err := wire.Decode[*metav1.PartialObjectMetadata](o)
			wiretest.Must(t, err)
			wiretest.WantEqual(t, "metadata", metaAgain, meta)
		}
		fresh, err := wire.DecodeFresh[*corev1.Pod](o)
		wiretest.Must(t, err)
		if fresh == first {
			t.Error("DecodeFresh gave the shared value")
		}
		runtime.KeepAlive(first)
		runtime.KeepAlive(meta)
	}
}

func TestDecode_keepsNothingThatNobodyHolds(t *testing.T) {
	o := wiretest.PodObject(t, wire.Protobuf, 1)
	for range 5 {
		gone := make(chan struct{})
		func() {
			p, err := wire.Decode[*corev1.Pod](o)
			wiretest.Must(t, err)
			runtime.AddCleanup(p, func(ch chan struct{}) { close(ch) }, gone)
		}()
		wiretest.Until(t, func() bool {
			runtime.GC()
			select {
			case <-gone:
				return true
			default:
				return false
			}
		})
	}

	const n = 2000
	objects := make([]*wire.Object, n)
	for i := range objects {
		objects[i] = wiretest.PodObject(t, wire.Protobuf, i)
	}
	before := wiretest.Heap()
	for _, o := range objects {
		_, err := wire.Decode[*corev1.Pod](o)
		wiretest.Must(t, err)
	}
	if left := int64(wiretest.Heap()-before) / n; left > 150 {
		t.Errorf("decoding left %d bytes behind for each object", left)
	}
	runtime.KeepAlive(objects)
}

func TestDecode_concurrentDecodersAgree(t *testing.T) {
	for range 50 {
		o := wiretest.PodObject(t, wire.Protobuf, 1)
		pods := make([]*corev1.Pod, 8)
		metas := make([]*metav1.PartialObjectMetadata, len(pods))
		var ready, done sync.WaitGroup
		ready.Add(len(pods))
		for i := range pods {
			done.Go(func() {
				ready.Done()
				ready.Wait()
				var err error
				if pods[i], err = wire.Decode[*corev1.Pod](o); err != nil {
					t.Error(err)
				}
				if metas[i], err = wire.Decode[*metav1.PartialObjectMetadata](o); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		for i := range pods {
			if pods[i] != pods[0] || metas[i] != metas[0] {
				t.Fatal("two decoders have different values")
			}
		}
	}
}

func TestEncode_roundTrip(t *testing.T) {
	r := specimen.Rand(t)
	filler := specimen.New(r)
	for _, gvk := range wiretest.ObjectKinds(t) {
		value := filler.Object(gvk)
		for _, e := range wiretest.Encodings {
			o, err := wire.Encode(value, e, wiretest.KindOf(gvk))
			wiretest.Must(t, err)
			body := wiretest.Encode(t, e, gvk.GroupVersion(), value)
			wiretest.CheckObject(t, o, gvk, e, body)
		}
	}
}

func TestEncode_takesTheKindFromTheValue(t *testing.T) {
	pod := wiretest.NewPod(1)
	if _, err := wire.Encode(pod, wire.Protobuf, nil); err == nil {
		t.Error("a pod that does not say what it is was encoded")
	}
	pod.SetGroupVersionKind(wiretest.PodKind.GroupVersionKind)
	for _, e := range wiretest.Encodings {
		o, err := wire.Encode(pod, e, nil)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "kind", o.GroupVersionKind(), wiretest.PodKind.GroupVersionKind)
		wiretest.WantEqual(t, "encoding", o.Encoding(), e)
		back, err := wire.Decode[*corev1.Pod](o)
		wiretest.Must(t, err)
		if !apiequality.Semantic.DeepEqual(back, pod) {
			t.Error(cmp.Diff(pod, back))
		}
		u, err := wire.Decode[*unstructured.Unstructured](o)
		wiretest.Must(t, err)
		again, err := wire.Encode(u, e, nil)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "encoding", again.Encoding(), wire.JSON)
		uAgain, err := wire.Decode[*unstructured.Unstructured](again)
		wiretest.Must(t, err)
		if !reflect.DeepEqual(u, uAgain) {
			t.Error(cmp.Diff(u, uAgain))
		}
		m, err := wire.Decode[*metav1.PartialObjectMetadata](o)
		wiretest.Must(t, err)
		metaOnly, err := wire.Encode(m, e, nil)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "encoding", metaOnly.Encoding(), e)
		wiretest.WantEqual(t, "key", metaOnly.Key(), o.Key())
		wiretest.WantEqual(t, "kind", metaOnly.GroupVersionKind(), o.GroupVersionKind())
	}
	for _, bad := range []any{nil, 5, &corev1.Pod{}, map[string]any{"metadata": 1}, func() {}} {
		if o, err := wire.Encode(bad, wire.JSON, &wire.Kind{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "X"},
		}); err == nil {
			t.Errorf("%v was encoded: %v", bad, o)
		}
		if o, err := wire.Encode(bad, wire.JSON, nil); err == nil {
			t.Errorf("%v was encoded: %v", bad, o)
		}
	}
}
