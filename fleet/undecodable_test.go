// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// change writes a state of the pod "n/name" that can be decoded into a Pod or not, or
// deletes the pod with such a state.
func (w *world) change(typ delta.Type, cluster, name string, decodable bool) {
	w.t.Helper()
	w.version++
	var node any = "n"
	if !decodable {
		node = int64(7) // not a string
	}
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	o, err := wire.Encode(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"namespace": "n", "name": name, "resourceVersion": strconv.FormatUint(w.version, 10),
		},
		"spec": map[string]any{"nodeName": node},
	}}, wire.JSON, kind)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mirrors[cluster].informer.Write(delta.Delta[*wire.Object]{Type: typ, Key: o.Key(), Object: o, Version: w.version})
}

func TestWatch_statesThatCannotBeDecoded(t *testing.T) {
	w := newWorld(t, 1<<20)
	w.fleet.settings.Logger = slog.New(slog.DiscardHandler)
	w.join("eu")
	defer func() { w.end["eu"]() }()
	v := OfResource[*corev1.Pod](w.fleet, w.c.Resource())
	_, f := v.Follow()
	for n, step := range []struct {
		typ       delta.Type
		name      string
		decodable bool
		want      string
	}{
		{delta.Added, "mended", false, ""},
		{delta.Updated, "mended", false, ""},
		{delta.Updated, "mended", true, "Added 4"},
		{delta.Updated, "mended", false, ""},
		{delta.Updated, "mended", true, "Updated 6 from 4"},
		{delta.Added, "breaks", true, "Added 7"},
		{delta.Updated, "breaks", false, ""},
		{delta.Updated, "breaks", false, ""},
		{delta.Deleted, "breaks", false, "Deleted 7"},
		{delta.Deleted, "mended", false, "Deleted 6"},
		{delta.Added, "never", false, ""},
		{delta.Deleted, "never", false, ""},
	} {
		w.change(step.typ, "eu", step.name, step.decodable)
		changes, err := f.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for c := range changes {
			now, err := c.New()
			if err != nil {
				continue
			}
			got = fmt.Sprintf("%s %s", c.Type, now.ResourceVersion)
			if c.Type == delta.Updated {
				old, err := c.Old()
				if err != nil {
					t.Fatal(err)
				}
				got += fmt.Sprintf(" from %s", old.ResourceVersion)
			}
		}
		if got != step.want {
			t.Errorf("step %d: %q, want %q", n, got, step.want)
		}
	}
}

func TestUndecodable_isLoggedOncePerState(t *testing.T) {
	w := newWorld(t, 1<<20)
	var logged bytes.Buffer
	w.fleet.settings.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	w.join("eu")
	defer func() { w.end["eu"]() }()
	w.change(delta.Added, "eu", "bad", false)
	v := OfResource[*corev1.Pod](w.fleet, w.c.Resource())
	for range 100 {
		for key := range v.All() {
			t.Errorf("%s was read", key)
		}
	}
	if lines := bytes.Count(logged.Bytes(), []byte("\n")); lines != 1 || w.fleet.Stats().Undecodable != 1 {
		t.Errorf("%d lines were logged and %d states counted, want one", lines, w.fleet.Stats().Undecodable)
	}
}
