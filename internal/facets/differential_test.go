// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/wire"
)

// perKind is how many objects of each kind are compared.
const perKind = 8

// TestRecord_hasTheValuesOfTheDecodedObject compares all fields of random objects of every
// built-in kind that can be facets, in both encodings, with the decoded objects.
func TestRecord_hasTheValuesOfTheDecodedObject(t *testing.T) {
	r := specimen.Rand(t)
	maker := specimen.New(r)
	count := map[wire.Encoding]*counts{wire.JSON: {}, wire.Protobuf: {}}
	for _, gvk := range specimen.Kinds(t) {
		var objects []decoded
		paths := map[string]bool{}
		for range perKind {
			o := decode1(t, gvk, maker.Object(gvk))
			leaves(o.content, nil, false, paths)
			objects = append(objects, o)
		}
		for _, d := range everyKind {
			paths[d.path] = true
		}
		for _, path := range columns[gvk.Group+"/"+gvk.Kind] {
			paths[path] = true
		}
		p := newPlan(gvk, anywhere(r, paths))
		for _, o := range objects {
			for encoding, raw := range map[wire.Encoding][]byte{wire.JSON: o.json, wire.Protobuf: o.protobuf} {
				compare(t, p, o, encoding, raw, count[encoding])
			}
		}
	}
	for encoding, n := range count {
		t.Logf("%v: %d values compared, %d of them not empty, %d unknown", encoding, n.all, n.found, n.unknown)
		if n.found < 20_000 {
			t.Errorf("%v: only %d values were compared that are not empty", encoding, n.found)
		}
	}
	if n := count[wire.JSON]; n.unknown > n.all/50 {
		t.Errorf("JSON: %d of %d values are unknown", n.unknown, n.all)
	}
	if n := count[wire.Protobuf]; n.unknown > n.all*2/5 {
		t.Errorf("protobuf: %d of %d values are unknown", n.unknown, n.all)
	}
}

type counts struct{ all, found, unknown int }

// decoded is an object in both encodings and as an unstructured object.
type decoded struct {
	json, protobuf []byte
	content        map[string]any
	kind           *wire.Kind
}

func decode1(t *testing.T, gvk schema.GroupVersionKind, o runtime.Object) decoded {
	t.Helper()
	d := decoded{kind: &wire.Kind{GroupVersionKind: gvk, New: func() runtime.Object {
		made, err := scheme.Scheme.New(gvk)
		if err != nil {
			panic(err)
		}
		return made
	}}}
	var err error
	if d.protobuf, err = o.(interface{ Marshal() ([]byte, error) }).Marshal(); err != nil {
		t.Fatal(err)
	}
	// The JSON is that of the object that was read from protobuf, as an API server returns it.
	stored := d.kind.New()
	if err := stored.(interface{ Unmarshal([]byte) error }).Unmarshal(d.protobuf); err != nil {
		t.Fatal(err)
	}
	stored.GetObjectKind().SetGroupVersionKind(gvk)
	if d.json, err = runtime.Encode(unstructured.UnstructuredJSONScheme, toUnstructured(t, stored)); err != nil {
		t.Fatal(err)
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(d.json); err != nil {
		t.Fatal(err)
	}
	d.content = u.Object
	return d
}

func toUnstructured(t *testing.T, o runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// leaves adds the paths of the scalars of a value.
func leaves(value any, steps []step, inList bool, paths map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if name == "" || strings.ContainsAny(name, "'.[]*\"()?@ \n") || len(name) > 100 {
				continue
			}
			leaves(member, append(slices.Clone(steps), step{name: name}), inList, paths)
		}
	case []any:
		if inList || len(steps) == 0 {
			return
		}
		each := slices.Clone(steps)
		each[len(each)-1].each = true
		for _, member := range v {
			leaves(member, each, true, paths)
		}
	default:
		paths[canonical(steps)] = true
	}
}

// anywhere returns facets in random groups.
func anywhere(r *rand.Rand, paths map[string]bool) (all []declared) {
	for path := range paths {
		all = append(all, declared{path, group(r.Intn(int(groups)))})
	}
	return all
}

func compare(t *testing.T, p *Plan, d decoded, e wire.Encoding, raw []byte, n *counts) {
	t.Helper()
	o, err := wire.NewObject(slices.Clone(raw), e, d.kind)
	if err != nil {
		t.Fatal(err)
	}
	p.Attach(o, nil)
	rec := Of(o)
	partial := false
	for _, f := range p.Facets() {
		got, known := rec.Value(f.Path)
		n.all++
		if !known {
			n.unknown++
			partial = true
			continue
		}
		want := valueAt(d.content, f.steps)
		if f.List && want == nil {
			want = []any{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v of %v in %v: %.200v, want %.200v",
				f.Path, d.kind.Kind, e, fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
		}
		if want != nil && !reflect.DeepEqual(want, []any{}) {
			n.found++
		}
	}
	if rec.Partial() != partial {
		t.Errorf("%v: partial is %t, want %t", d.kind.Kind, rec.Partial(), partial)
	}
}

// valueAt returns the value at a path of a decoded object.
func valueAt(value any, steps []step) any {
	for i, s := range steps {
		m, _ := value.(map[string]any)
		value = m[s.name]
		if !s.each {
			continue
		}
		list, _ := value.([]any)
		all := make([]any, len(list))
		for j, element := range list {
			all[j] = valueAt(element, steps[i+1:])
		}
		return all
	}
	return value
}
