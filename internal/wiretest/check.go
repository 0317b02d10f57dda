// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wiretest

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/watershed-project/watershed/wire"
)

// SameIdentity compares an object with the one that apimachinery has decoded completely.
func SameIdentity(t *testing.T, o *wire.Object, want metav1.Object) {
	t.Helper()
	WantEqual(t, "key", o.Key(), key(want))
	WantEqual(t, "name", o.Name(), want.GetName())
	WantEqual(t, "namespace", o.Namespace(), want.GetNamespace())
	WantEqual(t, "version", o.Version(), version(want))
	WantEqual(t, "resourceVersion", o.ResourceVersion(), want.GetResourceVersion())
}

// CheckObject compares everything that can be read from o with what apimachinery reads
// from the body of a GET.
func CheckObject(tb testing.TB, o *wire.Object, gvk schema.GroupVersionKind, e wire.Encoding, body []byte) {
	tb.Helper()
	want, _, err := Codecs.UniversalDeserializer().Decode(body, nil, nil)
	Must(tb, err)
	m := want.(metav1.Object)
	WantEqual(tb, "Key", o.Key(), key(m))
	WantEqual(tb, "Namespace", o.Namespace(), m.GetNamespace())
	WantEqual(tb, "Name", o.Name(), m.GetName())
	WantEqual(tb, "ResourceVersion", o.ResourceVersion(), m.GetResourceVersion())
	WantEqual(tb, "Version", o.Version(), version(m))
	WantEqual(tb, "GroupVersionKind", o.GroupVersionKind(), gvk)
	WantEqual(tb, "Encoding", o.Encoding(), e)
	if want := Bare(tb, e, body); !bytes.Equal(o.Bytes(), want) {
		tb.Errorf("Bytes are\n%q, want\n%q", o.Bytes(), want)
	}
	if want := m.GetCreationTimestamp().Time; !o.Created().Equal(want) {
		tb.Errorf("Created is %v, want %v", o.Created(), want)
	}
	CheckMeta(tb, o, m)
	checkUnstructured(tb, o, gvk, body, want)
	CheckPartial(tb, o, gvk)

	decode, ok := typed[gvk]
	if !ok {
		return
	}
	own, err := decode(o)
	Must(tb, err)
	WantEqual(tb, "GVK of the typed value", own.GetObjectKind().GroupVersionKind(), gvk)
	want.GetObjectKind().SetGroupVersionKind(gvk)
	if !apiequality.Semantic.DeepEqual(own, want) {
		tb.Errorf("typed value differs: %s", cmp.Diff(want, own))
	}
}

// CheckMeta compares the labels of an object.
func CheckMeta(tb testing.TB, o *wire.Object, m metav1.Object) {
	tb.Helper()
	if diff := cmp.Diff(m.GetLabels(), LabelsOf(o), cmpopts.EquateEmpty()); diff != "" {
		tb.Errorf("labels differ: %s", diff)
	}
	for k, v := range m.GetLabels() {
		if got, ok := o.Label(k); !ok || got != v {
			tb.Errorf("label %q is %q, %v, want %q", k, got, ok, v)
		}
	}
	if v, ok := o.Label("no such label"); ok {
		tb.Errorf("a label that is not there is %q", v)
	}
}

func checkUnstructured(
	tb testing.TB, o *wire.Object, gvk schema.GroupVersionKind, body []byte, typed apiruntime.Object,
) {
	tb.Helper()
	got, err := wire.DecodeFresh[*unstructured.Unstructured](o)
	Must(tb, err)
	want := &unstructured.Unstructured{}
	if o.Encoding() == wire.JSON {
		_, _, err = unstructured.UnstructuredJSONScheme.Decode(body, nil, want)
	} else {
		want.Object, err = apiruntime.DefaultUnstructuredConverter.ToUnstructured(typed)
	}
	Must(tb, err)
	want.SetGroupVersionKind(gvk)
	if !reflect.DeepEqual(got, want) {
		tb.Errorf("unstructured value differs: %s", cmp.Diff(want, got))
	}
}

// CheckPartial compares the metadata of an object.
func CheckPartial(tb testing.TB, o *wire.Object, gvk schema.GroupVersionKind) {
	tb.Helper()
	got, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	Must(tb, err)
	want := &metav1.PartialObjectMetadata{}
	if o.Encoding() == wire.JSON {
		err = utiljson.Unmarshal(o.Bytes(), want)
	} else {
		err = want.Unmarshal(o.Bytes())
	}
	Must(tb, err)
	want.SetGroupVersionKind(gvk)
	if !reflect.DeepEqual(got, want) {
		tb.Errorf("metadata differs: %s", cmp.Diff(want, got))
	}
}

// LabelsOf returns the labels of an object.
func LabelsOf(o *wire.Object) map[string]string {
	all := map[string]string{}
	o.EachLabel(func(k, v string) { all[k] = v })
	return all
}

// UseObject calls all methods and ignores their errors.
func UseObject(o *wire.Object) {
	_ = LabelsOf(o)
	_, _ = o.Created(), o.Managers(nil)
	o.Label("app")
	_ = o.ResourceVersion() + o.Namespace() + o.Name() + o.String()
	_, _ = wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	pod, _ := wire.DecodeFresh[*corev1.Pod](o)
	less := o.Without(wire.ManagedFields | wire.LastApplied)
	_ = LabelsOf(less)
	_ = less.DecodeIntoLike(new(corev1.Pod), o, pod)
}

// WantAllocs fails if f allocates more often.
func WantAllocs(tb testing.TB, e wire.Encoding, what string, want float64, f func()) {
	tb.Helper()
	if got := testing.AllocsPerRun(100, f); got > want && !Race {
		tb.Errorf("%v: %s allocates %v times, want %v", e, what, got, want)
	}
}

// Heap returns the bytes of live objects in the heap.
func Heap() uint64 {
	var m runtime.MemStats
	for range 3 { // the content of a sync.Pool survives the first collection
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
