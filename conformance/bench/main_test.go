// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBenchmarks_haveAFileEach checks that the benchmarks are those of make bench, and
// that each is in the file or package with its name, or is a test of the package that it
// names.
func TestBenchmarks_haveAFileEach(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^bench: .*NAME=(\S+)`).FindSubmatch(makefile)
	if found == nil {
		t.Fatal("make bench has no names")
	}
	names := strings.Split(string(found[1]), "|")
	slices.Sort(names)
	got := slices.Sorted(maps.Keys(benchmarks))
	for name := range goTests {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		t.Errorf("the command has %v, make bench %v", got, names)
	}
	for name := range benchmarks {
		file, function := name+".go", "bench"+strings.ToUpper(name[:1])+name[1:]
		if _, err := os.Stat(name); err == nil {
			file, function = name+"/"+file, "Bench"
		}
		has(t, "func "+function+"(", file)
	}
	for _, g := range goTests {
		has(t, "func "+g.name+"(", "../.."+g.pkg+"/*_test.go")
	}
}

// has checks that one of the files has a line that begins with the text.
func has(t *testing.T, text, files string) {
	t.Helper()
	paths, _ := filepath.Glob(files)
	for _, path := range paths {
		if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), "\n"+text) {
			return
		}
	}
	t.Errorf("%s does not have %s", files, text)
}
