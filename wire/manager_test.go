// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// written is an entry of managed fields, at a second.
func written(manager string, second int, fields string) metav1.ManagedFieldsEntry {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC))
	return metav1.ManagedFieldsEntry{
		Manager:    manager,
		Operation:  "Update",
		APIVersion: "v1",
		Time:       &at,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(fields),
	}
}

func TestObject_Managers(t *testing.T) {
	status := written("kubelet", 5, `{"f:b":{}}`)
	status.Subresource = "status"
	const a, ab = `{"f:a":{}}`, `{"f:a":{},"f:b":{}}`
	for _, test := range []struct {
		name     string
		old, now []metav1.ManagedFieldsEntry
		want     []string
	}{
		{"no managed fields", nil, nil, nil},
		{"created", nil, []metav1.ManagedFieldsEntry{written("kubectl", 1, a)}, []string{"kubectl"}},
		{
			"the latest time without an older state",
			nil,
			[]metav1.ManagedFieldsEntry{written("kubectl", 1, a), written("kubelet", 2, a)},
			[]string{"kubelet"},
		},
		{
			"the same second without an older state",
			nil,
			[]metav1.ManagedFieldsEntry{written("kubelet", 2, a), written("kubectl", 2, a)},
			[]string{"kubectl", "kubelet"},
		},
		{
			"a new entry in the same second",
			[]metav1.ManagedFieldsEntry{written("kubectl", 2, a)},
			[]metav1.ManagedFieldsEntry{written("kubelet", 2, a), written("kubectl", 2, a)},
			[]string{"kubelet"},
		},
		{
			"another subresource",
			[]metav1.ManagedFieldsEntry{written("kubelet", 2, a), written("x", 6, a)},
			[]metav1.ManagedFieldsEntry{written("kubelet", 2, a), status, written("x", 6, a)},
			[]string{"kubelet"},
		},
		{
			"other fields in the same second",
			[]metav1.ManagedFieldsEntry{written("a", 2, a), written("b", 2, a)},
			[]metav1.ManagedFieldsEntry{written("a", 2, a), written("b", 2, ab)},
			[]string{"b"},
		},
		{
			"a field taken from another manager",
			[]metav1.ManagedFieldsEntry{written("a", 1, ab), written("b", 2, a)},
			[]metav1.ManagedFieldsEntry{written("a", 1, a), written("b", 3, ab)},
			[]string{"b"},
		},
		{
			"an older clock",
			[]metav1.ManagedFieldsEntry{written("a", 9, a), written("b", 2, a)},
			[]metav1.ManagedFieldsEntry{written("a", 9, a), written("b", 3, a)},
			[]string{"b"},
		},
		{
			"equal entries",
			[]metav1.ManagedFieldsEntry{written("a", 9, a), written("b", 2, a)},
			[]metav1.ManagedFieldsEntry{written("a", 9, a), written("b", 2, a)},
			[]string{"a"},
		},
	} {
		for _, encoding := range []Encoding{JSON, Protobuf} {
			object := func(entries []metav1.ManagedFieldsEntry) *Object {
				if entries == nil && test.now != nil {
					return nil
				}
				return managedObject(t, encoding, entries)
			}
			if got := object(test.now).Managers(object(test.old)); !slices.Equal(got, test.want) {
				t.Errorf("%s, %v: %v, want %v", test.name, encoding, got, test.want)
			}
		}
	}
}

func TestObject_LastManager(t *testing.T) {
	for _, test := range []struct {
		name string
		now  []metav1.ManagedFieldsEntry
		want string
	}{
		{"no managed fields", nil, ""},
		{"one", []metav1.ManagedFieldsEntry{written("kubelet", 3, "{}")}, "kubelet"},
		{
			"two entries of one", []metav1.ManagedFieldsEntry{
				written("kubelet", 3, "{}"), written("kubelet", 2, "{}"),
			}, "kubelet",
		},
		{
			"long after another", []metav1.ManagedFieldsEntry{
				written("a", 20, "{}"), written("b", 26, "{}"), written("c", 3, "{}"),
			}, "b",
		},
		{
			"long after another, in another order", []metav1.ManagedFieldsEntry{
				written("b", 26, "{}"), written("c", 3, "{}"), written("a", 20, "{}"),
			}, "b",
		},
		{"soon after another", []metav1.ManagedFieldsEntry{written("a", 21, "{}"), written("b", 26, "{}")}, ""},
		{
			"soon after another, in another order",
			[]metav1.ManagedFieldsEntry{written("b", 26, "{}"), written("a", 21, "{}")}, "",
		},
		{
			"between two entries of another", []metav1.ManagedFieldsEntry{
				written("a", 3, "{}"), written("b", 10, "{}"), written("a", 30, "{}"),
			}, "a",
		},
	} {
		for _, encoding := range []Encoding{JSON, Protobuf} {
			if got := managedObject(t, encoding, test.now).LastManager(); got != test.want {
				t.Errorf("%s, %v: %q, want %q", test.name, encoding, got, test.want)
			}
		}
	}
}

func managedObject(t *testing.T, encoding Encoding, entries []metav1.ManagedFieldsEntry) *Object {
	t.Helper()
	c := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "y", ResourceVersion: "7", ManagedFields: entries},
		Data:       map[string]string{"a": "b"},
	}
	raw, err := json.Marshal(c)
	kind := &Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	if encoding == Protobuf {
		raw, err = c.Marshal()
	}
	if err != nil {
		t.Fatal(err)
	}
	o, err := NewObject(raw, encoding, kind)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
