// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/layout"
)

var update = flag.Bool("update", false,
	"record the present state: the modules that each library package links, the hash of each translated page")

const updateLinked = "go test ./internal/layout -run '^TestLinked' -update"

// TestLinked_modulesAreListed fails when a library package links a module that
// testdata/linked.txt does not list for it: every user of the package would
// link it too.
func TestLinked_modulesAreListed(t *testing.T) {
	linked := map[string][]string{}
	for _, s := range sources(t) {
		if _, done := linked[s.Dir()]; !done && library(s) {
			linked[s.Dir()] = links(t, s.Dir())
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

// library reports whether other modules can import the file's package, and users get it.
func library(f layout.File) bool {
	first, _, _ := strings.Cut(f.Path, "/")
	return f.Public() || first == "metrics" && !f.Test()
}

// links returns the modules whose packages a program links when it imports the package
// in a folder, sorted. The module of the package itself and the standard library are
// left out. The list is that of linux/amd64 without cgo, so that it is the same on every
// machine.
func links(t *testing.T, folder string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{with .Module}}{{.Path}} {{$.DepOnly}}{{end}}", ".")
	cmd.Dir = filepath.Join(root, folder)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps in %s: %v\n%s", folder, err, &stderr)
	}
	linked := map[string]bool{}
	own := ""
	for line := range strings.Lines(string(out)) {
		module, depOnly, found := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case found && depOnly == "true":
			linked[module] = true
		case found:
			own = module
		}
	}
	delete(linked, own)
	return slices.Sorted(maps.Keys(linked))
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
			problems = append(problems,
				fmt.Sprintf("library package %s is not in testdata/linked.txt; to list its %d modules: %s",
					pkg, len(linked[pkg]), updateLinked))
			continue
		}
		for _, module := range linked[pkg] {
			if !slices.Contains(old, module) {
				problems = append(problems,
					fmt.Sprintf("package %s links a new module, %s, and so does every user of the package; if that "+
						"is intended: %s",
						pkg, module, updateLinked))
			}
		}
		for _, module := range old {
			if !slices.Contains(linked[pkg], module) {
				problems = append(problems,
					fmt.Sprintf("package %s no longer links %s; to keep it so: %s", pkg, module, updateLinked))
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(listed)) {
		if _, ok := linked[pkg]; !ok {
			problems = append(problems,
				fmt.Sprintf("testdata/linked.txt has %s, which is not a library package; to remove it: %s", pkg,
					updateLinked))
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
