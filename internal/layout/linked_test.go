// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/layout/figures"
)

var update = flag.Bool("update", false, "record the present state: the modules that each library package links, the hash of each translated page")

const updateLinked = "go test ./internal/layout -run '^TestLinked' -update"

// TestLinked_modulesAreListed fails when a library package links a module that
// testdata/linked.txt does not list for it: every user of the package would
// link it too.
func TestLinked_modulesAreListed(t *testing.T) {
	checkout, err := figures.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string][]string{}
	for _, pkg := range figures.PublicPackages(checkout) {
		if linked[pkg], err = figures.Links(checkout, pkg); err != nil {
			t.Fatal(err)
		}
	}
	golden := filepath.Join("testdata", "linked.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(formatLinked(linked)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range compareLinked(parseLinked(string(text)), linked) {
		t.Error(problem)
	}
}

// formatLinked writes a line per package, and below it an indented line per
// module that it links.
func formatLinked(linked map[string][]string) string {
	var text strings.Builder
	for _, pkg := range slices.Sorted(maps.Keys(linked)) {
		fmt.Fprintln(&text, pkg)
		for _, module := range linked[pkg] {
			fmt.Fprintln(&text, "\t"+module)
		}
	}
	return text.String()
}

func parseLinked(text string) map[string][]string {
	linked := map[string][]string{}
	pkg := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if module, ok := strings.CutPrefix(line, "\t"); ok {
			linked[pkg] = append(linked[pkg], module)
			continue
		}
		pkg = line
		linked[pkg] = nil
	}
	return linked
}

// compareLinked returns a sentence for each difference between the listed
// modules and those that are linked now.
func compareLinked(listed, linked map[string][]string) []string {
	var problems []string
	for _, pkg := range slices.Sorted(maps.Keys(linked)) {
		old, ok := listed[pkg]
		if !ok {
			problems = append(problems, fmt.Sprintf("library package %s is not in testdata/linked.txt; to list its %d modules: %s",
				pkg, len(linked[pkg]), updateLinked))
			continue
		}
		for _, module := range linked[pkg] {
			if !slices.Contains(old, module) {
				problems = append(problems, fmt.Sprintf("package %s links a new module, %s, and so does every user of the package; if that is intended: %s",
					pkg, module, updateLinked))
			}
		}
		for _, module := range old {
			if !slices.Contains(linked[pkg], module) {
				problems = append(problems, fmt.Sprintf("package %s no longer links %s; to keep it so: %s", pkg, module, updateLinked))
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(listed)) {
		if _, ok := linked[pkg]; !ok {
			problems = append(problems, fmt.Sprintf("testdata/linked.txt has %s, which is not a library package; to remove it: %s", pkg, updateLinked))
		}
	}
	return problems
}

func TestLinked_comparisonNamesEachDifference(t *testing.T) {
	listed := parseLinked("delta\nstore\n\tbtree\n\told\ngone\n\tbtree\n")
	linked := map[string][]string{"delta": {"added"}, "store": {"btree"}, "metrics": {"prometheus"}}
	got := compareLinked(listed, linked)
	want := []string{
		"package delta links a new module, added,",
		"library package metrics is not in testdata/linked.txt",
		"package store no longer links old",
		"testdata/linked.txt has gone,",
	}
	if len(got) != len(want) {
		t.Fatalf("%d differences, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) || !strings.HasSuffix(got[i], updateLinked) {
			t.Errorf("got %q, want %q … %q", got[i], want[i], updateLinked)
		}
	}
	if again := compareLinked(parseLinked(formatLinked(linked)), linked); len(again) > 0 {
		t.Errorf("what was written is read differently: %q", again)
	}
}
