// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/table"
)

func TestFor_unknownKinds(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{
		{Kind: "Pod"},
		{Version: "v1", Kind: "Widget"},
		{Group: "apps", Version: "v1", Kind: "Pod"},
	} {
		if _, ok := table.For(kind); ok {
			t.Errorf("%s has a printer", kind)
		}
	}
}
