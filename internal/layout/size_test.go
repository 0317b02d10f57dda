// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/layout"
)

// exception lets a package be larger than it should be. It has the size that the package
// had when its number was last lowered.
type exception struct {
	files, lines int
	reason       string
}

// exceptions are the packages that are larger. No package is.
var exceptions = map[string]exception{}

// slackFiles and slackLines are how far a package may be below its exception before the
// exception has to be lowered.
const slackFiles, slackLines = 1, 100

// TestSizes_stayBounded fails if a package or a file is too large, or if an exception can
// be lowered or deleted: exceptions only shrink.
func TestSizes_stayBounded(t *testing.T) {
	files := sources(t)
	for _, problem := range sizeProblems(layout.Sizes(files), exceptions) {
		t.Error(problem)
	}
	for _, f := range files {
		if lines := f.Lines(); lines > layout.MaxFileLines {
			t.Errorf("%s has %d lines, more than %d", f.Path, lines, layout.MaxFileLines)
		}
	}
}

// TestLines_fit fails if a line has more than 120 columns and could be broken.
func TestLines_fit(t *testing.T) {
	for _, f := range sources(t) {
		literal := f.LiteralLines()
		for _, line := range f.LongLines() {
			if !literal[line] {
				t.Errorf("%s:%d: the line has more than 120 columns: break it", f.Path, line)
			}
		}
	}
}

// sizeProblems returns a sentence for each package that is too large, and for each
// exception that is not needed as it is.
func sizeProblems(sizes map[string]layout.Size, exceptions map[string]exception) []string {
	var problems []string
	for _, pkg := range slices.Sorted(maps.Keys(sizes)) {
		size := sizes[pkg]
		e, excepted := exceptions[pkg]
		above := size.Over(layout.MaxFiles, layout.MaxLines)
		has := fmt.Sprintf("package %s has %d files and %d lines without tests", pkg, size.Files, size.Lines)
		switch {
		case above && !excepted:
			problems = append(problems, fmt.Sprintf(
				"%s, the bounds are %d and %d: move a responsibility into a package of its own",
				has, layout.MaxFiles, layout.MaxLines))
		case excepted && size.Over(e.files, e.lines):
			problems = append(problems, fmt.Sprintf(
				"%s, its exception allows %d and %d and must not grow", has, e.files, e.lines))
		case excepted && !above:
			problems = append(problems, has+" and needs no exception: delete it")
		case excepted && (e.files > size.Files+slackFiles || e.lines > size.Lines+slackLines):
			problems = append(problems, fmt.Sprintf(
				"%s: lower its exception of %d and %d to that", has, e.files, e.lines))
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(exceptions)) {
		if _, found := sizes[pkg]; !found {
			problems = append(problems, "the exception for "+pkg+" has no package: delete it")
		}
	}
	return problems
}

func TestSizes_eachProblemIsNamed(t *testing.T) {
	sizes := map[string]layout.Size{
		"good":    {Files: layout.MaxFiles, Lines: layout.MaxLines},
		"allowed": {Files: 30, Lines: 4000},
		"files":   {Files: layout.MaxFiles + 1},
		"lines":   {Lines: layout.MaxLines + 1},
		"grown":   {Files: 30, Lines: 4001},
		"shrunk":  {Files: 28, Lines: 4000},
		"small":   {Files: layout.MaxFiles},
	}
	exceptions := map[string]exception{}
	for _, pkg := range []string{"allowed", "grown", "shrunk", "small", "gone"} {
		exceptions[pkg] = exception{30, 4000, "a reason"}
	}
	got := sizeProblems(sizes, exceptions)
	want := []string{
		"package files has 25 files and 0 lines without tests, the bounds are",
		"package grown has 30 files and 4001 lines without tests, its exception",
		"package lines has 0 files and 3601 lines without tests, the bounds are",
		"package shrunk has 28 files and 4000 lines without tests: lower",
		"package small has 24 files and 0 lines without tests and needs no exception",
		"the exception for gone",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFile_counts(t *testing.T) {
	text := `// A comment.

package p

/* Another
comment. */
const C, d = ` + "`raw\n\n// code`" + `, 1 // with a comment

type T struct{ F, g int }

func (t *T) M() {}
func (e e) M()  {}

type e struct{ F int }
type I[X any] interface{ M() }

var V = "` + strings.Repeat("ü", 100) + `"
var long = "` + strings.Repeat("x", 110) + `"
`
	syntax, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := layout.File{Path: "p/p.go", Text: []byte(text), Syntax: syntax}
	if lines, code, long := f.Lines(), f.CodeLines(), len(f.LongLines()); lines != 20 || code != 10 || long != 1 {
		t.Errorf("%d lines, %d of code, %d long; want 20, 10 and 1", lines, code, long)
	}
	var exported []string
	for _, name := range f.Names() {
		if name.Exported() {
			exported = append(exported, name.Kind+" "+name.String())
		}
	}
	want := []string{"const C", "type T", "field T.F", "method T.M", "type I", "method I.M", "var V"}
	if !slices.Equal(exported, want) {
		t.Errorf("exported %q, want %q", exported, want)
	}
	for path, want := range map[string][2]bool{
		"p/p.go": {true, true}, "p/internal/q/q.go": {true, false}, "metrics/m.go": {true, false},
		"p/p_test.go": {false, false}, "examples/p/p.go": {false, false},
	} {
		f.Path = path
		if got := [2]bool{f.Product(), f.Public()}; got != want {
			t.Errorf("%s: product and public are %v, want %v", path, got, want)
		}
	}
}
