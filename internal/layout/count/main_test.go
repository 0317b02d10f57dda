// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestRun_printsACheckoutPerColumn(t *testing.T) {
	checkout := filepath.Join("..", "figures", "testdata", "checkout")
	var text strings.Builder
	if err := run(&text, []string{checkout, "again=" + checkout}, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"checkout", "again", "functions over 60 lines", "c.go -> a.go (1 uses, back)", "README.md 5\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
}

func TestRun_needsACheckout(t *testing.T) {
	for _, folders := range [][]string{nil, {filepath.Join("testdata", "nothing")}} {
		if err := run(&strings.Builder{}, folders, false); err == nil {
			t.Errorf("no error for the folders %q", folders)
		}
	}
}
