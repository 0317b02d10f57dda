// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package terminal

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestPrintError_eachLineHasTheName(t *testing.T) {
	var out strings.Builder
	PrintError(&out, fmt.Errorf("config: %w", errors.Join(errors.New("one"), errors.New("two\n\n  detail\n"))))
	if want := "watershed: config: one\nwatershed: two\nwatershed:   detail\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
