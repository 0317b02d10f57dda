// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBenchmarks_haveAFileEach checks that the benchmarks are those of make bench, and
// that each is in the file with its name.
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
	if got := slices.Sorted(maps.Keys(benchmarks)); !slices.Equal(got, names) {
		t.Errorf("the command has %v, make bench %v", got, names)
	}
	for _, name := range names {
		text, err := os.ReadFile(name + ".go")
		function := "\nfunc bench" + strings.ToUpper(name[:1]) + name[1:] + "("
		if err != nil || !strings.Contains(string(text), function) {
			t.Errorf("%s.go does not have %s: %v", name, strings.TrimSpace(function), err)
		}
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".go")
		name, _, _ = strings.Cut(strings.TrimSuffix(name, "_test"), "_")
		if ok && name != "main" && !slices.Contains(names, name) {
			t.Errorf("%s does not begin with the name of a benchmark", f.Name())
		}
	}
}
