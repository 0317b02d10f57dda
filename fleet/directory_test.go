// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"strings"
	"testing"

	"github.com/watershed-project/watershed/fleet"
)

func TestValidateName(t *testing.T) {
	for _, name := range []string{
		"a", "kind-x", "user@host", "arn:aws:eks:eu-west-1:1234:cluster%2Fprod", "a b", "Zürich", "...",
		strings.Repeat("x", 512),
	} {
		if err := fleet.ValidateName(name); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]string{
		"": "empty", ".": "path", "..": "path", "a/b": "slash", "caf\xe9": "UTF-8", "a\nb": "glyph",
		"a\u202eb": "glyph", "\x7f": "glyph", strings.Repeat("x", 513): "513 bytes",
	} {
		if err := fleet.ValidateName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", name, err, want)
		}
	}
}
