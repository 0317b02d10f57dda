// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// TestObject_Without compares with apimachinery's result of the same removals.
func TestObject_Without(t *testing.T) {
	r := specimen.Rand(t)
	f := specimen.New(r)
	dropped := 0
	for _, gvk := range wiretest.ObjectKinds(t) {
		for _, e := range wiretest.Encodings {
			filled := f.Object(gvk)
			m := filled.(metav1.Object)
			switch r.Intn(3) {
			case 0:
				m.SetAnnotations(map[string]string{lastApplied: `{"a":"b\\"}`})
			case 1:
				m.SetAnnotations(map[string]string{lastApplied: "x", "a": "b", "z": "{}"})
			}
			o, err := stream.ReadObject(strings.NewReader(string(wiretest.Encode(t, e, gvk.GroupVersion(), filled))), e,
				wiretest.KindOf(gvk))
			wiretest.Must(t, err)
			fields := wire.Fields(r.Intn(4))
			got := o.Without(fields)

			want := filled.DeepCopyObject()
			w := want.(metav1.Object)
			if fields&wire.ManagedFields != 0 {
				w.SetManagedFields(nil)
			}
			if fields&wire.LastApplied != 0 {
				all := w.GetAnnotations()
				delete(all, lastApplied)
				if len(all) == 0 {
					w.SetAnnotations(nil)
				}
			}
			wanted, err := stream.ReadObject(strings.NewReader(string(wiretest.Encode(t, e, gvk.GroupVersion(), want))),
				e, wiretest.KindOf(gvk))
			wiretest.Must(t, err)
			a, err := wire.DecodeFresh[*unstructured.Unstructured](got)
			wiretest.Must(t, err)
			b, err := wire.DecodeFresh[*unstructured.Unstructured](wanted)
			wiretest.Must(t, err)
			if !apiequality.Semantic.DeepEqual(a, b) {
				t.Fatalf("%v %v without %d: %s", gvk, e, fields, cmp.Diff(b, a))
			}
			if got != o {
				dropped++
			} else if string(o.Bytes()) != string(wanted.Bytes()) && e == wire.JSON {
				t.Errorf("%v: nothing was dropped", gvk)
			}
			wiretest.WantEqual(t, "key", got.Key(), o.Key())
			wiretest.WantEqual(t, "version", got.ResourceVersion(), o.ResourceVersion())
		}
	}
	if dropped < len(wiretest.ObjectKinds(t))/4 {
		t.Errorf("%d objects had something to drop: hardly a test", dropped)
	}
}
