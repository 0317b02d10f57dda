// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Column is a checkout in a table.
type Column struct {
	Title  string
	Counts *Counts
}

// WriteTable writes the figures of one or more checkouts side by side: first
// those of the whole checkout, then those of each package.
func WriteTable(w io.Writer, columns []Column) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(name string, cell func(*Counts) string) {
		fmt.Fprint(t, name)
		for _, c := range columns {
			fmt.Fprint(t, "\t", cell(c.Counts))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprint(t, "figure")
	for _, c := range columns {
		fmt.Fprint(t, "\t", c.Title)
	}
	fmt.Fprintln(t)
	row("exported identifiers, public packages", func(c *Counts) string { return fmt.Sprint(sum(c.Exported, public)) })
	row("exported identifiers, all packages", func(c *Counts) string { return fmt.Sprint(sum(c.Exported, nil)) })
	row("packages with 10 % or more against the flow", func(c *Counts) string { return fmt.Sprint(tangled(c.Flow)) })
	row("duplicated blocks, library and program", func(c *Counts) string { return fmt.Sprint(len(c.Duplicates)) })
	row("duplicated blocks, all outside tests", func(c *Counts) string { return fmt.Sprint(len(c.AllDuplicates)) })
	row("functions over 60 lines outside tests", func(c *Counts) string { return fmt.Sprint(len(c.Long)) })
	for _, name := range slices.Sorted(maps.Keys(LinkedPackages)) {
		row("modules linked by a user of "+name, func(c *Counts) string {
			links, ok := c.Links[name]
			if !ok {
				return "-"
			}
			return fmt.Sprint(len(links))
		})
	}
	row("words to replace: "+strings.Join(Words, ", "), func(c *Counts) string { return fmt.Sprint(len(c.Words)) })
	for _, word := range Words {
		row("  "+word, func(c *Counts) string { return fmt.Sprint(uses(c, word)) })
	}
	fmt.Fprintln(t)
	packageRows(t, columns)
	return t.Flush()
}

// packageRows writes a row per package: exported identifiers, references between
// its files that point against the flow, their share, and how many of them point
// back in the order of the files: the fewest that have to be turned round.
func packageRows(w io.Writer, columns []Column) {
	names := map[string]bool{}
	fmt.Fprint(w, "package")
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s: exported\tagainst the flow\t\tback", c.Title)
		for name := range c.Counts.Exported {
			names[name] = true
		}
		for _, f := range c.Counts.Flow {
			names[f.Package] = true
		}
	}
	fmt.Fprintln(w)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprint(w, name)
		for _, c := range columns {
			exported, against, percent, back := "-", "-", "", ""
			if n, ok := c.Counts.Exported[name]; ok {
				exported = fmt.Sprint(n)
			}
			if i := slices.IndexFunc(c.Counts.Flow, func(f PackageFlow) bool { return f.Package == name }); i >= 0 {
				f := c.Counts.Flow[i]
				against = fmt.Sprintf("%d of %d", f.Against(), len(f.References))
				percent = fmt.Sprintf("%.0f %%", f.Percent())
				back = fmt.Sprint(len(f.back()))
			}
			fmt.Fprintf(w, "\t%s\t%s\t%s\t%s", exported, against, percent, back)
		}
		fmt.Fprintln(w)
	}
}

// WritePlaces writes where the figures of a checkout come from: the modules, the
// long functions, the duplicated blocks, the references that point back and the
// number of words to replace in each file.
func WritePlaces(w io.Writer, c *Counts) {
	for _, name := range slices.Sorted(maps.Keys(c.Links)) {
		fmt.Fprintf(w, "\nmodules linked by a user of %s: %s\n", name, strings.Join(c.Links[name], " "))
	}
	fmt.Fprintf(w, "\nfunctions over 60 lines:%s\n", all(c.Long))
	fmt.Fprintf(w, "\nduplicated blocks outside tests:%s\n", all(c.AllDuplicates))
	for _, f := range c.Flow {
		if f.Against() > 0 {
			fmt.Fprintf(w, "\n%s: %d of %d against the flow; order %s; pointing back:%s\n", f.Package,
				f.Against(), len(f.References), strings.Join(f.Order, " "), all(f.back()))
		}
	}
	files := map[string]int{}
	for _, u := range c.Words {
		files[u.Path]++
	}
	fmt.Fprintln(w, "\nwords to replace, by file:")
	for _, file := range slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(cmp.Compare(files[b], files[a]), strings.Compare(a, b))
	}) {
		fmt.Fprintf(w, "\t%s %d\n", file, files[file])
	}
}

func all[T fmt.Stringer](items []T) string {
	var text strings.Builder
	for _, item := range items {
		text.WriteString("\n\t" + item.String())
	}
	return text.String()
}

// goal is the percentage of references against the flow that every package is
// to stay below.
const goal = 10

func tangled(flows []PackageFlow) int {
	n := 0
	for _, f := range flows {
		if f.Percent() >= goal {
			n++
		}
	}
	return n
}

// sum adds the counts of the packages that are accepted; nil accepts all.
func sum(counts map[string]int, accept func(pkg string) bool) int {
	total := 0
	for pkg, n := range counts {
		if accept == nil || accept(pkg) {
			total += n
		}
	}
	return total
}

func uses(c *Counts, word string) int {
	n := 0
	for _, u := range c.Words {
		if u.Word == word {
			n++
		}
	}
	return n
}
