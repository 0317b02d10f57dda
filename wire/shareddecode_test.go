// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"math/rand"
	"reflect"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// decodeLike decodes an object beside another state.
func decodeLike[T wire.Pointer[P], P any](o, like *wire.Object, value T) (T, error) {
	into := T(new(P))
	return into, o.DecodeIntoLike(into, like, value)
}

// likeness decodes one of two states with decodeLike and compares with decoding each on
// its own.
func likeness[T interface {
	wire.Pointer[P]
	runtime.Object
	metav1.Object
}, P any](t *testing.T, r *rand.Rand, f *specimen.Maker) {
	t.Helper()
	gvk := kindOfType[T](t)
	kind := wiretest.KindOf(gvk)
	for n := range 60 {
		a := f.Object(gvk).(T)
		b := a.DeepCopyObject().(T)
		mutate(r, f, reflect.ValueOf(b).Elem(), 3)
		b.SetName(a.GetName())
		b.SetNamespace(a.GetNamespace())
		b.SetResourceVersion(strconv.Itoa(n + 1))
		x, err := wire.Encode(a, wire.Protobuf, kind)
		wiretest.Must(t, err)
		y, err := wire.Encode(b, wire.Protobuf, kind)
		wiretest.Must(t, err)
		first, err := wire.Decode[T](x)
		wiretest.Must(t, err)
		got, err := decodeLike[T](y, x, first)
		wiretest.Must(t, err)
		want, err := wire.DecodeFresh[T](y)
		wiretest.Must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: %s", gvk, cmp.Diff(want, got))
		}
		again, err := wire.DecodeFresh[T](x)
		wiretest.Must(t, err)
		if !reflect.DeepEqual(first, again) {
			t.Fatalf("%v: the state that was decoded before has changed: %s", gvk, cmp.Diff(again, first))
		}
	}
}

// kindOfType returns the kind of a type in the scheme.
func kindOfType[T runtime.Object](t *testing.T) schema.GroupVersionKind {
	t.Helper()
	o := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(runtime.Object)
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	wiretest.Must(t, err)
	return kinds[0]
}

// mutate changes some fields of a struct at random, on several levels.
func mutate(r *rand.Rand, f *specimen.Maker, v reflect.Value, depth int) {
	for i := range v.NumField() {
		field := v.Field(i)
		switch {
		case !field.CanSet() || v.Type().Field(i).Name == "TypeMeta" || r.Intn(3) != 0:
		case field.Kind() == reflect.Struct && depth > 0 && v.Type().Field(i).Tag.Get("protobuf") != "":
			mutate(r, f, field, depth-1)
		case r.Intn(3) == 0:
			field.SetZero()
		default:
			f.Fill(field.Addr().Interface())
		}
	}
}

func TestDecodeLike_isAsDecode(t *testing.T) {
	r := specimen.Rand(t)
	f := specimen.New(r)
	likeness[*corev1.Pod](t, r, f)
	likeness[*corev1.Node](t, r, f)
	likeness[*corev1.Secret](t, r, f)
	likeness[*corev1.ConfigMap](t, r, f)
	likeness[*corev1.Service](t, r, f)
	likeness[*corev1.Event](t, r, f)
	likeness[*appsv1.Deployment](t, r, f)
	likeness[*appsv1.StatefulSet](t, r, f)
}

func TestDecodeLike_sharesWhatIsTheSame(t *testing.T) {
	a, b := wiretest.NewPod(1), wiretest.NewPod(1)
	b.ResourceVersion = "77"
	b.Status.Phase = corev1.PodFailed
	x, err := wire.Encode(a, wire.Protobuf, wiretest.PodKind)
	wiretest.Must(t, err)
	y, err := wire.Encode(b, wire.Protobuf, wiretest.PodKind)
	wiretest.Must(t, err)
	first, err := wire.Decode[*corev1.Pod](x)
	wiretest.Must(t, err)
	second, err := decodeLike(y, x, first)
	wiretest.Must(t, err)
	wiretest.WantEqual(t, "phase", second.Status.Phase, corev1.PodFailed)
	wiretest.WantEqual(t, "version", second.ResourceVersion, "77")
	wiretest.WantEqual(t, "kind", second.Kind, "Pod")
	if &first.Spec.Containers[0] != &second.Spec.Containers[0] {
		t.Error("the containers are there twice")
	}
	third, err := wire.Decode[*corev1.Pod](y)
	wiretest.Must(t, err)
	if third == second || &third.Spec.Containers[0] == &first.Spec.Containers[0] {
		t.Error("readers of the object get the parts of another state")
	}
	fresh := testing.AllocsPerRun(20, func() { _, _ = wire.DecodeFresh[*corev1.Pod](y) })
	like := testing.AllocsPerRun(20, func() {
		z, _ := wire.NewObject(y.Bytes(), wire.Protobuf, wiretest.PodKind)
		_, _ = decodeLike(z, x, first)
	})
	t.Logf("%v allocations, beside another state %v", fresh, like)
	if like > fresh/3 {
		t.Errorf("%v allocations beside another state, %v without", like, fresh)
	}
}

// TestDecodeLike_decodesWhatIsNotLike checks that objects of other types and wiretest.Encodings
// are decoded as usual.
func TestDecodeLike_decodesWhatIsNotLike(t *testing.T) {
	for _, e := range wiretest.Encodings {
		for _, other := range wiretest.Encodings {
			x, y := wiretest.PodObject(t, e, 1), wiretest.PodObject(t, other, 2)
			first, err := wire.Decode[*corev1.Pod](x)
			wiretest.Must(t, err)
			got, err := decodeLike(y, x, first)
			wiretest.Must(t, err)
			wiretest.WantEqual(t, "name", got.Name, y.Name())
		}
	}
}

func BenchmarkDecodeLike(b *testing.B) {
	x := wiretest.PodObject(b, wire.Protobuf, 1)
	pod := wiretest.NewPod(1)
	pod.ResourceVersion = "9999"
	pod.Status.Conditions = pod.Status.Conditions[1:]
	y, err := wire.Encode(pod, wire.Protobuf, wiretest.PodKind)
	wiretest.Must(b, err)
	first, err := wire.Decode[*corev1.Pod](x)
	wiretest.Must(b, err)
	b.Run("like", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			z, _ := wire.NewObject(y.Bytes(), wire.Protobuf, wiretest.PodKind)
			_, _ = decodeLike(z, x, first)
		}
	})
	b.Run("fresh", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			z, _ := wire.NewObject(y.Bytes(), wire.Protobuf, wiretest.PodKind)
			_, _ = wire.Decode[*corev1.Pod](z)
		}
	})
}
