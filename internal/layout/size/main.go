// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command size prints how large a checkout is, or two checkouts side by side:
//
//	go run ./internal/layout/size [[title=]folder]...
//
// The first table is of the whole checkout:
//
//   - code lines: lines with something besides blanks and comments. The product is what is in the library,
//     the program and their releases. Tests are all files that end in _test.go. The rest are examples,
//     benchmarks, the test environment and tools for the repository.
//   - exported names: those that the public packages of the root module declare, by kind
//   - lines over 120 columns: of all Go files, tests included; a tab is four columns
//   - modules in go.mod: all that the root module requires, and those of them that it imports itself
//
// The second table has a row for each package:
//
//   - files and lines: without tests; lines with blanks and comments
//   - mark: + above 20 files or 3,000 lines, ! above 24 or 3,600, which the tests of package layout allow
//     only to the packages that they list
//   - linked: how many other modules a program links that imports the package, as
//     internal/layout/testdata/linked.txt lists them
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/watershed-project/watershed/internal/layout"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// counts has the numbers of one checkout: the rows of the first table, and those of the second by package.
type counts struct {
	title    string
	totals   []total
	packages map[string]layout.Size
	linked   map[string]int
}

type total struct {
	name string
	n    int
}

func run(w io.Writer, checkouts []string) error {
	var all []counts
	names := map[string]bool{}
	for _, arg := range checkouts {
		title, folder, found := strings.Cut(arg, "=")
		if !found {
			folder = arg
		}
		c, err := count(title, folder)
		if err != nil {
			return err
		}
		all = append(all, c)
		for name := range c.packages {
			names[name] = true
		}
	}
	if len(all) == 0 {
		return errors.New("give the directories of one or more checkouts")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, cells func(counts) string) {
		fmt.Fprint(t, name)
		for _, c := range all {
			fmt.Fprint(t, "\t", cells(c))
		}
		fmt.Fprintln(t)
	}
	row("", func(c counts) string { return c.title })
	for i, first := range all[0].totals {
		row(first.name, func(c counts) string { return fmt.Sprintf("%6d", c.totals[i].n) })
	}
	row("\npackage", func(c counts) string { return c.title + ":  files   lines      linked" })
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row(name, func(c counts) string {
			linked := ""
			if n, found := c.linked[name]; found {
				linked = fmt.Sprint(n)
			}
			size := c.packages[name]
			return fmt.Sprintf("%*d  %6d %s %9s", len(c.title)+8, size.Files, size.Lines, mark(size), linked)
		})
	}
	return t.Flush()
}

// mark returns how far a package is above what it should have.
func mark(size layout.Size) string {
	switch {
	case size.Over(layout.MaxFiles, layout.MaxLines):
		return "!"
	case size.Over(layout.AimFiles, layout.AimLines):
		return "+"
	}
	return " "
}

// count counts the checkout in a folder.
func count(title, folder string) (counts, error) {
	files, err := layout.Read(folder)
	if err != nil {
		return counts{}, err
	}
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return counts{}, err
	}
	// An old checkout has no such list.
	linked, err := os.ReadFile(filepath.Join(folder, "internal", "layout", "testdata", "linked.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return counts{}, err
	}
	var product, tests, rest, exported, long int
	kinds := map[string]int{}
	for _, f := range files {
		switch {
		case f.Test():
			tests += f.CodeLines()
		case f.Product():
			product += f.CodeLines()
		default:
			rest += f.CodeLines()
		}
		long += len(f.LongLines())
		for _, name := range f.Names() {
			if f.Public() && name.Exported() {
				exported++
				kinds[name.Kind]++
			}
		}
	}
	c := counts{title, []total{
		{"code lines, product", product}, {"code lines, tests", tests}, {"code lines, rest", rest},
		{"exported names", exported},
	}, layout.Sizes(files), countLinked(string(linked))}
	for _, kind := range []string{"type", "func", "method", "field", "const", "var"} {
		c.totals = append(c.totals, total{"  " + kind, kinds[kind]})
	}
	// A go.mod of ours has tabs only in its require blocks.
	required := bytes.Count(mod, []byte("\n\t"))
	indirect := bytes.Count(mod, []byte("// indirect\n"))
	c.totals = append(c.totals, total{"lines over 120 columns", long},
		total{"modules in go.mod", required}, total{"  imported", required - indirect})
	return c, nil
}

// countLinked counts the modules that each package links. The text has a line for each package, and below
// it an indented line for each module.
func countLinked(text string) map[string]int {
	linked := map[string]int{}
	pkg := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") {
			linked[pkg]++
			continue
		}
		pkg = strings.TrimSpace(line)
		linked[pkg] = 0
	}
	return linked
}
