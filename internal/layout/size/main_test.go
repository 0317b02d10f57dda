// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var toy = map[string]string{
	"go.mod": "module example.com/toy\n\nrequire (\n\texample.com/a v1.0.0\n\t" +
		"example.com/b v1.0.0 // indirect\n)\n",
	"toy.go":                              "// Package toy is small.\npackage toy\n\n// Do returns.\nfunc Do() {}\n",
	"toy_test.go":                         "package toy\n",
	"examples/e/e.go":                     "package main\n\nfunc main() {}\n",
	"internal/layout/testdata/linked.txt": ".\n\texample.com/a\n\texample.com/b\n\texample.com/c\n",
}

// write writes files into a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestRun_putsCheckoutsSideBySide(t *testing.T) {
	larger := maps.Clone(toy)
	larger["big/big.go"] = "package big\n" + strings.Repeat("// A line.\n", 3001)
	larger["huge/huge.go"] = "package huge\n\nvar Huge = 1\n" + strings.Repeat("// A line.\n", 3601)
	var out strings.Builder
	if err := run(&out, []string{"old=" + write(t, toy), "new=" + write(t, larger)}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"old new",
		"code lines, product 2 5", "code lines, tests 1 1", "code lines, rest 2 2",
		"exported names 1 2", "type 0 0", "func 1 1", "method 0 0", "field 0 0", "const 0 0", "var 0 1",
		"lines over 120 columns 0 0", "modules in go.mod 2 2", "imported 1 1",
		"", "package old: files lines linked new: files lines linked",
		". 1 5 3 1 5 3", "big 0 0 1 3002 +", "examples/e 1 3 1 3", "huge 0 0 1 3604 !",
	}
	if text := strings.Join(want, "\n"); strings.Join(got, "\n") != text {
		t.Errorf("got\n%s\nwant\n%s", &out, text)
	}
}

func TestRun_needsACheckout(t *testing.T) {
	for _, checkouts := range [][]string{nil, {t.TempDir()}, {filepath.Join("testdata", "nothing")}} {
		if err := run(&strings.Builder{}, checkouts); err == nil {
			t.Errorf("no error for the checkouts %q", checkouts)
		}
	}
}
