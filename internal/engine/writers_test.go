// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/wire"
)

// TestWriters_keepFieldManagers drops managed fields, and still has the names of the
// managers when the changes are stored.
func TestWriters_keepFieldManagers(t *testing.T) {
	var w writers
	drop := w.noting(Chain(wire.ManagedFields))
	arrive := func(version int, manager string) Change {
		t.Helper()
		raw := fmt.Sprintf(
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"y","resourceVersion":"%d","managedFields":[{"manager":"%s","operation":"Update","time":"2026-01-01T00:00:00Z"}]}}`, version, manager,
		)
		o, err := wire.NewObject([]byte(raw), wire.JSON, nil)
		expect.NoError(t, err)
		o, err = drop(o)
		expect.NoError(t, err)
		if len(o.Managers(nil)) > 0 {
			t.Fatal("the managed fields are not dropped")
		}
		return Change{New: o}
	}
	take := func(version uint64, changes []Change, want ...string) {
		t.Helper()
		if got := w.take(changes, version); !slices.Equal(got, want) {
			t.Errorf("version %d: %q, want %q", version, got, want)
		}
	}
	listed := arrive(5, "kubectl") // of the first list: it is not a change
	take(7, []Change{listed})
	first, second, third := arrive(8, "kubelet"), arrive(9, "helm"), arrive(12, "argocd")
	take(10, []Change{first, {}, second}, "kubelet", "", "helm")
	if len(w.names) != 1 || len(w.versions) != 1 {
		t.Errorf("%d names are left", len(w.names))
	}
	relisted := arrive(9, "helm") // it has not changed since
	take(11, []Change{relisted}, "")
	take(12, []Change{third}, "argocd")
	if w.names != nil || w.versions != nil {
		t.Errorf("%d names are left", len(w.names))
	}
}

// TestWriters_withoutTransformation: names are remembered only if they are cheap to read and
// certain.
func TestWriters_withoutTransformation(t *testing.T) {
	var w writers
	note := w.noting(nil)
	w.take(nil, 1)
	for version, tt := range map[uint64]struct {
		managers []string
		seconds  int // between them
		as       wire.Encoding
		want     string
	}{
		2: {[]string{"kubelet"}, 0, wire.Protobuf, "kubelet"},
		3: {[]string{"helm", "kubelet"}, 60, wire.Protobuf, "kubelet"},
		4: {[]string{"helm", "kubelet"}, 1, wire.Protobuf, ""},
		5: {[]string{"kubelet"}, 0, wire.JSON, ""},
	} {
		c := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: fmt.Sprint(version)},
		}
		for i, name := range tt.managers {
			at := metav1.NewTime(time.Unix(int64(1e9+i*tt.seconds), 0))
			c.ManagedFields = append(c.ManagedFields, metav1.ManagedFieldsEntry{Manager: name, Time: &at})
		}
		o, err := wire.Encode(c, tt.as, &wire.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")})
		expect.NoError(t, err)
		same, err := note(o)
		expect.NoError(t, err)
		if same != o {
			t.Error("the object was exchanged")
		}
		if got := w.names[version]; got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
