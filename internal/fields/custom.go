// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Custom returns the labels of a version of a custom resource: its selectableFields,
// which are paths like .spec.color, and those of metadata. Objects are unstructured.
func Custom(namespaced bool, paths []string) (*Set, error) {
	s := &Set{labels: map[string]string{name: name}, refuse: unsupported}
	if namespaced {
		s.labels[namespace] = namespace
	}
	split := make(map[string][]string, len(paths))
	for _, p := range paths {
		label, ok := strings.CutPrefix(p, ".")
		path := strings.Split(label, ".")
		if !ok || slices.ContainsFunc(path, func(field string) bool {
			return field == "" || strings.ContainsAny(field, "[]*'\"")
		}) {
			return nil, fmt.Errorf("selectable field %q: it is not a path of fields", p)
		}
		s.labels[label], split[label] = label, path
	}
	s.value = func(obj runtime.Object, label string) string {
		o, ok := obj.(*unstructured.Unstructured)
		path := split[label]
		if !ok || path == nil {
			return ""
		}
		var value any = o.Object
		for _, field := range path {
			m, _ := value.(map[string]any)
			value = m[field]
		}
		switch v := value.(type) {
		case nil:
			return ""
		case string:
			return v
		}
		return fmt.Sprint(value)
	}
	return s, nil
}
