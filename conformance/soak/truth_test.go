// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// equalToEtcd returns an error with the differences between etcd and the informers, or
// the records of their handlers. compared is the number of compared objects.
func (fs *followers) equalToEtcd(ctx context.Context, c *kubetest.Cluster) (compared int, err error) {
	var errs []error
	for _, f := range fs.all {
		truth, err := c.Truth(ctx, f.resource.GroupResource())
		if err != nil {
			return compared, err
		}
		want := f.want(truth)
		compared += len(want)
		if diff := f.differences(want); len(diff) > 0 {
			errs = append(errs, fmt.Errorf("%s: %d differences: %s", f.name, len(diff),
				strings.Join(diff[:min(3, len(diff))], "; ")))
		}
	}
	return compared, errors.Join(errs...)
}

// want returns the objects that the informer should have.
func (f *follower) want(truth *kubetest.Truth) map[string]kubetest.Stored {
	want := map[string]kubetest.Stored{}
	for _, o := range truth.Objects {
		if f.selects == nil || f.selects(o) {
			want[cache.MetaObjectToName(o.Meta).String()] = o
		}
	}
	return want
}

func (f *follower) differences(want map[string]kubetest.Stored) []string {
	var diff []string
	got := map[string]runtime.Object{}
	for _, obj := range f.informer.GetStore().List() {
		key, _, err := identify(obj)
		if err != nil {
			diff = append(diff, err.Error())
			continue
		}
		got[key] = obj.(runtime.Object)
	}
	told := f.ledger.versions()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		o := want[key]
		cached, there := got[key]
		switch {
		case !there:
			diff = append(diff, fmt.Sprintf("%s is missing, in etcd at %d", key, o.Revision))
		case told[key] != uint64(o.Revision):
			diff = append(diff, fmt.Sprintf("the handler knows %s at %d, in etcd at %d", key, told[key], o.Revision))
		default:
			if err := same(cached, o); err != nil {
				diff = append(diff, fmt.Sprintf("%s: %v", key, err))
			}
		}
	}
	for key := range got {
		if _, there := want[key]; !there {
			diff = append(diff, key+" is not in etcd, or not to be selected")
		}
	}
	if len(told) != len(want) {
		diff = append(diff, fmt.Sprintf("the handler knows %d objects, in etcd are %d", len(told), len(want)))
	}
	return diff
}

// same returns an error unless a cached object equals the stored one, in all fields that
// the informer keeps.
func same(cached runtime.Object, o kubetest.Stored) error {
	_, version, err := identify(cached)
	if err != nil {
		return err
	}
	if version != uint64(o.Revision) {
		return fmt.Errorf("at %d, in etcd at %d", version, o.Revision)
	}
	var want any
	got := cached.DeepCopyObject()
	switch c := got.(type) {
	case *metav1.PartialObjectMetadata:
		got, want = &metav1.PartialObjectMetadata{ObjectMeta: c.ObjectMeta}, &metav1.PartialObjectMetadata{
			ObjectMeta: meta.AsPartialObjectMetadata(o.Meta).ObjectMeta,
		}
	case *unstructured.Unstructured:
		if _, custom := o.Object.(*unstructured.Unstructured); custom {
			want = o.Object
			break
		}
		typed := reflect.New(reflect.TypeOf(o.Object).Elem()).Interface().(runtime.Object)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c.Object, typed); err != nil {
			return err
		}
		got, want = untyped(typed), untyped(o.Object)
	default:
		got, want = untyped(got), untyped(o.Object)
	}
	if !equality.Semantic.DeepEqual(got, want) {
		return fmt.Errorf("the content at %d differs: %v, in etcd %v", version, got, want)
	}
	return nil
}

// untyped returns an object without its kind: caches of typed objects do not keep it.
func untyped(o runtime.Object) runtime.Object {
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return o
}

func TestSame(t *testing.T) {
	stored := func(version int64, data string) kubetest.Stored {
		m := &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "a", ResourceVersion: fmt.Sprint(version), Labels: map[string]string{"data": data},
			},
			Data: map[string]string{"k": data},
		}
		return kubetest.Stored{Revision: version, Object: m, Meta: m}
	}
	forms := map[string]func(kubetest.Stored) runtime.Object{
		"typed":    func(o kubetest.Stored) runtime.Object { return untyped(o.Object) },
		"metadata": func(o kubetest.Stored) runtime.Object { return meta.AsPartialObjectMetadata(o.Meta) },
		"dynamic": func(o kubetest.Stored) runtime.Object {
			m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			return &unstructured.Unstructured{Object: m}
		},
	}
	for name, form := range forms {
		if err := same(form(stored(7, "x")), stored(7, "x")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, other := range []kubetest.Stored{stored(8, "x"), stored(7, "y")} {
			if same(form(other), stored(7, "x")) == nil {
				t.Errorf("%s: no difference between %v and %v", name, other.Object, stored(7, "x").Object)
			}
		}
	}
}
