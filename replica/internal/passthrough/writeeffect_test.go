// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// TestEffect_lastFinalizer checks the effect of an update that removes the last finalizer of
// an object. kube-apiserver deletes it, and returns a version from before the deletion.
func TestEffect_lastFinalizer(t *testing.T) {
	now, zero, some := metav1.NewTime(time.Unix(1e9, 0)), int64(0), int64(30)
	q := &Request{Verb: "patch", Namespace: "n", Name: "a"}
	gone := effect{objects: []change{{"n/a", "u", removed, ""}}}
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		want effect
	}{
		"not deleted":        {metav1.ObjectMeta{}, effect{version: 7}},
		"without finalizers": {metav1.ObjectMeta{DeletionTimestamp: &now}, gone},
		"without grace":      {metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: &zero}, gone},
		"with grace": {
			metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: &some},
			effect{version: 7},
		},
		"with more of them": {
			metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"example.com/other"}},
			effect{version: 7},
		},
		"finalizers, no time": {metav1.ObjectMeta{Finalizers: []string{"example.com/other"}}, effect{version: 7}},
	} {
		c.meta.Name, c.meta.Namespace, c.meta.UID, c.meta.ResourceVersion = "a", "n", "u", "7"
		for _, info := range scheme.Codecs.SupportedMediaTypes() {
			if info.MediaType == runtime.ContentTypeYAML {
				continue
			}
			body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion),
				&corev1.ConfigMap{ObjectMeta: c.meta})
			if err != nil {
				t.Fatal(err)
			}
			if got := effectOf(q, info.MediaType, body); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, %s: %+v, want %+v", name, info.MediaType, got, c.want)
			}
		}
	}
}

// TestChange_ended checks that an object whose deletion is complete in the next step does not
// count as deleted: kube-apiserver writes such a state before it deletes a pod without a node.
func TestChange_ended(t *testing.T) {
	now, zero, some := metav1.NewTime(time.Unix(1e9, 0)), int64(0), int64(30)
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"not deleted":   {metav1.ObjectMeta{}, false},
		"without grace": {metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: &zero}, false},
		"with grace":    {metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: &some}, true},
		"with a finalizer": {
			metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"example.com/other"}},
			true,
		},
	} {
		c.meta.Name, c.meta.Namespace, c.meta.UID, c.meta.ResourceVersion = "a", "n", "u", "7"
		o, err := wire.Encode(&corev1.Pod{ObjectMeta: c.meta}, wire.Protobuf, kind)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&change{"n/a", "u", ended, ""}).isIn(o); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestEffect_collection checks the effect of the deletion of a collection. A read waits for
// the newest of its objects, and not for the version of the list, which the copy may reach
// much later.
func TestEffect_collection(t *testing.T) {
	now := metav1.NewTime(time.Unix(1e9, 0))
	item := func(name, version string, deleted *metav1.Time) corev1.ConfigMap {
		return corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:              name,
				Namespace:         "n",
				UID:               types.UID("uid-" + name),
				ResourceVersion:   version,
				DeletionTimestamp: deleted,
			},
		}
	}
	for name, c := range map[string]struct {
		items []corev1.ConfigMap
		want  effect
	}{
		"empty": {nil, effect{}},
		"two": {
			[]corev1.ConfigMap{item("a", "7", nil), item("b", "5", nil)},
			effect{version: 7, objects: []change{{"n/a", "uid-a", ended, ""}, {"n/b", "uid-b", ended, ""}}},
		},
		"being deleted": {[]corev1.ConfigMap{item("a", "7", nil), item("b", "5", &now)}, effect{unknown: true}},
		"no version":    {[]corev1.ConfigMap{item("a", "", nil)}, effect{unknown: true}},
	} {
		list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: c.items}
		for _, info := range scheme.Codecs.SupportedMediaTypes() {
			if info.MediaType == runtime.ContentTypeYAML {
				continue
			}
			body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion),
				list)
			if err != nil {
				t.Fatal(err)
			}
			if got := effectOf(&Request{Verb: "deletecollection", Namespace: "n"}, info.MediaType,
				body); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, %s: %+v, want %+v", name, info.MediaType, got, c.want)
			}
		}
	}
}
