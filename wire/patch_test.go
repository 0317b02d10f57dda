// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/wire"
)

func TestPatch_saysOtherwise(t *testing.T) {
	kind := &wire.Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		New:              func() runtime.Object { return &corev1.ConfigMap{} },
	}
	for _, annotations := range []map[string]string{nil, {"a": "1"}, {"cluster \"x\"": "old", "b": "2"}} {
		for _, p := range []wire.Patch{
			{},
			{Version: 77},
			{Annotation: "cluster \"x\"", Value: "eu\n1"},
			{Version: 8, Annotation: "cluster \"x\"", Value: ""},
		} {
			for _, e := range []wire.Encoding{wire.JSON, wire.Protobuf} {
				was := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
					ObjectMeta: metav1.ObjectMeta{
						Name: "n", Namespace: "ns", ResourceVersion: "5", Annotations: annotations,
						Labels: map[string]string{"l": "v"},
					}, Data: map[string]string{"metadata": "annotations"}}
				o, err := wire.Encode(was, e, kind)
				if err != nil {
					t.Fatal(err)
				}
				want := was.DeepCopy()
				if p.Version != 0 {
					want.ResourceVersion = fmt.Sprint(p.Version)
				}
				if p.Annotation != "" {
					if want.Annotations == nil {
						want.Annotations = map[string]string{}
					}
					want.Annotations[p.Annotation] = p.Value
				}
				now := o.With(p)
				got, err := wire.DecodeFresh[*corev1.ConfigMap](now)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%v of %v in %v (-want +got):\n%s", p, annotations, e, diff)
				}
				if p.Version != 0 && now.Version() != p.Version || now.Key() != "ns/n" {
					t.Errorf("patched object is %v", now)
				}
				if again, _ := wire.DecodeFresh[*corev1.ConfigMap](o); !cmp.Equal(again.Annotations, was.Annotations) {
					t.Error("the object itself has changed")
				}
				partial := &metav1.PartialObjectMetadata{}
				if e == wire.Protobuf {
					err = partial.Unmarshal(now.AppendMetadata(nil))
				} else {
					err = json.Unmarshal(now.AppendMetadata(nil), &partial.ObjectMeta)
				}
				if err != nil || !maps.Equal(partial.Annotations, want.Annotations) || partial.Name != "n" {
					t.Errorf("metadata is %v, %v", partial, err)
				}
			}
		}
	}
}

func TestAppendUntyped_dropsTheType(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "x.io/v1", "kind": "Thing", "metadata": map[string]any{"name": "n"},
		"spec": map[string]any{"kind": "inner"},
	}}
	o, err := wire.Encode(u, wire.JSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(o.AppendUntyped([]byte(" ")), &got); err != nil {
		t.Fatal(err)
	}
	delete(u.Object, "apiVersion")
	delete(u.Object, "kind")
	if diff := cmp.Diff(u.Object, got); diff != "" {
		t.Error(diff)
	}
}
