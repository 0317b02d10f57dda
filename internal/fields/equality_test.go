// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/fields"
	"github.com/watershed-project/watershed/wire"
)

// TestEqualities_areWhereTheLabelsAre fills the field at the path of every label of every
// kind, and compares the label's value in the decoded object with the field's value in
// the bytes.
func TestEqualities_areWhereTheLabelsAre(t *testing.T) {
	checked, withoutPath := 0, 0
	for kind := range scheme.Scheme.AllKnownTypes() {
		set := fields.For(kind)
		for label := range set.Labels() {
			if strings.HasPrefix(label, "metadata.") {
				continue
			}
			selector := parse(t, set, label+"=x")
			meant := selector.Requirements()[0].Field
			all := set.Equalities(selector)
			if len(all) == 0 {
				withoutPath++
				continue
			}
			path := wire.NewPath(all[0].Path)
			for _, value := range []any{nil, "x", "", "false", true, false, 7, 0} {
				obj, ok := withField(t, kind.Kind, kind.GroupVersion().String(), all[0].Path, value)
				if !ok {
					continue // the field has another type
				}
				checked++
				for _, encoding := range []wire.Encoding{wire.JSON, wire.Protobuf} {
					o, err := wire.Encode(obj, encoding, &wire.Kind{GroupVersionKind: kind, New: func() runtime.Object {
						empty, _ := scheme.Scheme.New(kind)
						return empty
					}})
					if err != nil {
						t.Fatal(err)
					}
					got, ok := o.Field(path)
					want := set.Of(obj).Get(meant)
					if e := (fields.Equality{Value: want}); !ok || !e.Allows(got) || e.Allows(got+"x") {
						t.Errorf("%s of %s with %v in %s: %q, %t, want %q", label, kind, value, encoding, got, ok, want)
					}
				}
			}
		}
	}
	// A pod's addresses and the source of an event have no single path.
	if checked < 100 || withoutPath != 3 {
		t.Errorf("compared %d values, and %d labels have no path of their own; want at least 100, and 3", checked,
			withoutPath)
	}
}

// withField decodes an object that has a name, and a value at a path.
func withField(t *testing.T, kind, version, path string, value any) (runtime.Object, bool) {
	t.Helper()
	object := map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{"name": "n"}}
	if value != nil {
		if err := unstructured.SetNestedField(object, jsonValue(value), strings.Split(path, ".")...); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	return obj, err == nil
}

func jsonValue(value any) any {
	if n, ok := value.(int); ok {
		return int64(n)
	}
	return value
}

func TestEqualities_ofSelectors(t *testing.T) {
	custom, err := fields.Custom(true, []string{".spec.size"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  *fields.Set
		text string
		want []fields.Equality
	}{
		{pods, "", nil},
		{pods, "spec.host=n", []fields.Equality{{Path: "spec.nodeName", Value: "n"}}},
		{pods, "spec.nodeName!=n", nil},
		{pods, "status.podIP=10.0.0.1", nil},
		{pods, "spec.nodeName==,status.phase!=Failed,status.phase=Running", []fields.Equality{
			{Path: "spec.nodeName"}, {Path: "status.phase", Value: "Running", Wide: true},
		}},
		{pods, "metadata.name=a", []fields.Equality{{Path: "metadata.name", Value: "a"}}},
		{
			fields.For(corev1.SchemeGroupVersion.WithKind("Event")), "involvedObject.name=a",
			[]fields.Equality{{Path: "involvedObject.name", Value: "a"}},
		},
		{custom, "spec.size=7", []fields.Equality{{Path: "spec.size", Value: "7"}}},
	} {
		got := c.set.Equalities(parse(t, c.set, c.text))
		slices.SortFunc(got, func(a, b fields.Equality) int { return strings.Compare(a.Path, b.Path) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%q requires %v, want %v", c.text, got, c.want)
		}
	}
}
