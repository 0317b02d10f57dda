// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// definition returns a custom resource definition whose plural does not follow any rule.
func definition(plural, kind string) string {
	return fmt.Sprintf(`
# A comment makes no document.
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: %[1]s, singular: %[3]s, kind: %[2]s, shortNames: [%[3]sx], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}, colour: {type: string}}}
    selectableFields: [{jsonPath: .spec.colour}]
---
`, plural, kind, strings.ToLower(kind))
}

func custom(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
}

// serve creates a custom resource definition and waits until it is served everywhere.
func serve(ctx context.Context, t *testing.T, k *kubetest.Cluster, c *kube.Cluster, plural, kind string) {
	t.Helper()
	create(ctx, t, k, definition(plural, kind))
	s := sourceOf(t, c, kube.Query{Resource: custom(plural)})
	expect.NoError(t, expect.Until(ctx, func() error {
		if served, err := s.Served(ctx); err != nil || !served {
			return fmt.Errorf("served: %t, %w", served, err)
		}
		_, err := s.List(ctx, reflector.ListOptions{}, func(*wire.Object) error { return nil })
		return err
	}))
}

func testCustomResource(t *testing.T, k *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := open(t, k.Config())
	gvr := custom("oxen")
	gvk := gvr.GroupVersion().WithKind("Ox")
	s := sourceOf(t, c, kube.Query{Resource: gvr})
	if _, err := c.Resolve(ctx, gvk); !meta.IsNoMatchError(err) {
		t.Errorf("the kind before it exists: %v", err)
	}
	if served, err := s.Served(ctx); err != nil || served {
		t.Errorf("served before it exists: %t, %v", served, err)
	}
	serve(ctx, t, k, c, "oxen", "Ox")

	const first = `{"apiVersion": "example.com/v1", "kind": "Ox", "metadata": {"name": "json", "labels": {"app": "a"}}, "spec": {"size": 9007199254740993}}`
	const more = `
apiVersion: example.com/v1
kind: Ox
metadata: {name: red, labels: {app: b}}
spec: {colour: red}
---
apiVersion: example.com/v1
kind: Ox
metadata: {name: blue, namespace: kube-system, labels: {app: b}}
spec: {colour: blue}
`
	expect.NoError(t, expect.Until(ctx, func() error { return k.CreateManifest(ctx, first) }))
	create(ctx, t, k, more)
	ox, err := c.Get(ctx, kube.Query{Resource: gvr, Namespace: "default"}, "json")
	if err != nil {
		t.Fatal(err)
	}
	if ox.Key() != "default/json" || ox.GroupVersionKind() != gvk {
		t.Errorf("got %s of kind %s", ox.Key(), ox.GroupVersionKind())
	}
	if !strings.Contains(string(ox.Bytes()), "9007199254740993") {
		t.Errorf("a large number became another: %s", ox.Bytes())
	}
	r, err := c.Resolve(ctx, gvk)
	if err != nil || r.GroupVersionResource != gvr || !r.Namespaced || !r.Preferred || r.Singular != "ox" {
		t.Errorf("resolved %+v, %v", r, err)
	}
	if r, err := c.ResolveResource(ctx,
		schema.GroupVersionResource{Group: "example.com", Resource: "oxen"}); err != nil ||
		r.GroupVersionKind() != gvk {
		t.Errorf("resolved without a version: %+v, %v", r, err)
	}

	for name, want := range map[string]struct {
		query kube.Query
		keys  []string
	}{
		"all":       {kube.Query{}, []string{"default/json", "default/red", "kube-system/blue"}},
		"namespace": {kube.Query{Namespace: "default"}, []string{"default/json", "default/red"}},
		"label":     {kube.Query{LabelSelector: "app in (b)"}, []string{"default/red", "kube-system/blue"}},
		"field":     {kube.Query{FieldSelector: "spec.colour=red"}, []string{"default/red"}},
		"tweak": {
			kube.Query{Tweak: func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=blue" }},
			[]string{"kube-system/blue"},
		},
		"metadata": {kube.Query{MetadataOnly: true}, []string{"default/json", "default/red", "kube-system/blue"}},
	} {
		q := want.query
		q.Resource = gvr
		s := sourceOf(t, c, q)
		listed, page, err := listAll(ctx, s, reflector.ListOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		w := beginWatch(ctx, t, s, reflector.WatchOptions{InitialEvents: true, Version: page.Version})
		watched, _, err := watchInitial(w)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, objects := range []map[string]*wire.Object{listed, watched} {
			for _, key := range want.keys {
				if o := objects[key]; o == nil || o.GroupVersionKind() != gvk || o.Encoding() != wire.JSON {
					t.Errorf("%s: %s is %v", name, key, o)
				}
			}
			if len(objects) != len(want.keys) {
				t.Errorf("%s: %v, want %v", name, objects, want.keys)
			}
		}
		w.Close()
	}

	testCustomChanges(ctx, t, k, s, first)

	if err := k.DeleteManifest(ctx, definition("oxen", "Ox")); err != nil {
		t.Fatal(err)
	}
	expect.NoError(t, expect.Until(ctx, func() error {
		if served, err := s.Served(ctx); err != nil || served {
			return fmt.Errorf("served: %t, %w", served, err)
		}
		_, err := s.List(ctx, reflector.ListOptions{}, func(*wire.Object) error { return nil })
		if reflector.ReasonOf(err) != reflector.NotServed {
			return fmt.Errorf("list: %w", err)
		}
		return nil
	}))
}

// testCustomChanges watches after a list and after initial events while an object is
// deleted and created again.
func testCustomChanges(ctx context.Context, t *testing.T, k *kubetest.Cluster, s *kube.Source, manifest string) {
	_, page, err := listAll(ctx, s, reflector.ListOptions{Version: "0"})
	if err != nil {
		t.Fatal(err)
	}
	afterList := beginWatch(ctx, t, s, reflector.WatchOptions{Version: page.Version, Timeout: time.Minute})
	defer afterList.Close()
	afterInitial := beginWatch(ctx, t, s, reflector.WatchOptions{InitialEvents: true})
	defer afterInitial.Close()
	if _, _, err := watchInitial(afterInitial); err != nil {
		t.Fatal(err)
	}
	if err := k.DeleteManifest(ctx, manifest); err != nil {
		t.Fatal(err)
	}
	create(ctx, t, k, manifest)
	for _, w := range []reflector.Watch[*wire.Object]{afterList, afterInitial} {
		gone := wantEvent(t, w, delta.Deleted, "default/json")
		back := wantEvent(t, w, delta.Added, "default/json")
		if back.Version() <= gone.Version() {
			t.Errorf("%s comes after %s", back, gone)
		}
	}
}

// testCustomMetadata recreates a resource with another kind: the kind that the source has
// discovered no longer counts.
func testCustomMetadata(t *testing.T, k *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := open(t, k.Config())
	s := sourceOf(t, c, kube.Query{Resource: custom("mice"), MetadataOnly: true})
	for _, kind := range []string{"Mouse", "Rat"} {
		serve(ctx, t, k, c, "mice", kind)
		expect.NoError(t, expect.Until(ctx, func() error {
			return k.CreateManifest(ctx, fmt.Sprintf(
				`{"apiVersion": "example.com/v1", "kind": %q, "metadata": {"name": "a"}, "spec": {"size": 1}}`, kind))
		}))
		expect.NoError(t, expect.Until(ctx, func() error {
			listed, _, err := listAll(ctx, s, reflector.ListOptions{})
			o := listed["default/a"]
			if err != nil || o == nil {
				return fmt.Errorf("listed %v, %w", listed, err)
			}
			if o.GroupVersionKind().Kind != kind || strings.Contains(string(o.Bytes()), `"spec"`) {
				return fmt.Errorf("%s is of kind %s", o.Bytes(), o.GroupVersionKind())
			}
			return nil
		}))
		if err := k.DeleteManifest(ctx, definition("mice", kind)); err != nil {
			t.Fatal(err)
		}
		expect.NoError(t, expect.Until(ctx, func() error {
			_, err := s.List(ctx, reflector.ListOptions{}, func(*wire.Object) error { return nil })
			if reflector.ReasonOf(err) != reflector.NotServed {
				return fmt.Errorf("list: %w", errors.Join(err, errors.New("want not served")))
			}
			return nil
		}))
	}
}
