// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/wire"
)

// TestReadDefinition_scale: the paths are those of the requested version.
func TestReadDefinition_scale(t *testing.T) {
	const text = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","versions":[
		{"name":"v1","subresources":{"status":{},"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size","labelSelectorPath":".status.of"}}},
		{"name":"v2","subresources":{"status":{}}},{"name":"v3"}]}}`
	kind := &wire.Kind{
		GroupVersionKind: schema.GroupVersionKind{
			Group: Definitions.Group, Version: "v1", Kind: "CustomResourceDefinition",
		},
	}
	o, err := wire.NewObject([]byte(text), wire.JSON, kind)
	if err != nil {
		t.Fatal(err)
	}
	if got := readDefinition(o, "v1", true).Scale; got == nil ||
		*got != (ScalePaths{".spec.size", ".status.size", ".status.of"}) {
		t.Errorf("v1 has %v", got)
	}
	for _, version := range []string{"v2", "v3", "v4"} {
		if got := readDefinition(o, version, true).Scale; got != nil {
			t.Errorf("%s has %v", version, got)
		}
	}
}
