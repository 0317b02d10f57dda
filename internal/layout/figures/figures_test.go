// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fixture reads a checkout of testdata from a copy outside this repository, where
// no go.work applies to it.
func fixture(t *testing.T, name string) *Checkout {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	c, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// written reads a checkout with one Go file.
func written(t *testing.T, name, text string) *Checkout {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func TestRead_refusesAFolderWithoutCode(t *testing.T) {
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("a folder without Go files was read")
	}
}

func TestExported_countsNamesMethodsAndFields(t *testing.T) {
	c := fixture(t, "checkout")
	equal(t, "exported", Exported(c)["exported"], 16)
	if n, ok := Exported(c)["."]; ok {
		t.Errorf("%d identifiers of a test are counted", n)
	}
}

func TestFlow_countsWhatPointsBack(t *testing.T) {
	flows, err := Flow(fixture(t, "checkout"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]PackageFlow{}
	for _, f := range flows {
		found[f.Package] = f
	}
	equal(t, "packages with several files", slices.Sorted(maps.Keys(found)), []string{"cycle", "straight", "twoway"})

	straight := found["straight"]
	equal(t, "order of straight", straight.Order, []string{"server.go", "cache.go", "entry.go"})
	equal(t, "references of straight", straight.References, []string{
		"cache.go -> entry.go (2 uses, forward)", "server.go -> cache.go (2 uses, forward)", "server.go -> entry.go (1 uses, forward)",
	})
	equal(t, "against in straight", straight.Against(), 0)
	equal(t, "share in straight", straight.Percent(), 0)

	twoway := found["twoway"]
	equal(t, "against in twoway", twoway.against(), []string{
		"child.go -> parent.go (2 uses, two-way)", "parent.go -> child.go (1 uses, two-way)",
	})
	equal(t, "back in twoway", twoway.back(), []string{"parent.go -> child.go (1 uses, two-way)"})
	equal(t, "share in twoway", twoway.Percent(), 50)

	cycle := found["cycle"]
	equal(t, "against in cycle", cycle.against(), []string{"c.go -> a.go (1 uses, back)"})
	equal(t, "references of cycle", len(cycle.References), 3)
}

func TestOrder_findsTheBestOfAllOrders(t *testing.T) {
	// A tournament on seven files, small enough to try all 5040 orders.
	files := []string{"a", "b", "c", "d", "e", "f", "g"}
	uses := map[direction]int{}
	for i, from := range files {
		for j, to := range files {
			if (i*i+3*j)%5 < 2 && i != j {
				uses[direction{from, to}] = 1 + (i+2*j)%4
			}
		}
	}
	cost := costs(files, uses)
	least := -1
	var try func(order []int, rest []int)
	try = func(order, rest []int) {
		if back := backward(order, cost); len(rest) == 0 && (least < 0 || back < least) {
			least = back
		}
		for i := range rest {
			try(append(slices.Clone(order), rest[i]), slices.Delete(slices.Clone(rest), i, i+1))
		}
	}
	try(nil, []int{0, 1, 2, 3, 4, 5, 6})
	var got []int
	for _, file := range order(files, uses) {
		got = append(got, slices.Index(files, file))
	}
	equal(t, "cost of the order", backward(got, cost), least)
	if least == 0 {
		t.Error("the graph of this test has no cycle")
	}
}

func TestOrder_turnsTheReferenceWithTheFewestUses(t *testing.T) {
	for _, want := range [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}} {
		uses := map[direction]int{{want[0], want[1]}: 3, {want[1], want[2]}: 2, {want[2], want[0]}: 1}
		equal(t, "order", order([]string{"a", "b", "c"}, uses), want)
	}
}

func TestDuplicates_countsEachExtraCopy(t *testing.T) {
	c := fixture(t, "duplicates")
	var found []string
	for _, b := range Duplicates(c, Product) {
		found = append(found, b.At.Path+" repeats "+b.First.Path)
	}
	equal(t, "duplicates in the product", strings.Join(found, ", "), "b.go repeats a.go, c.go repeats a.go, i.go repeats a.go")
	equal(t, "all duplicates", len(Duplicates(c, nil)), 4)
	whole, part := Duplicates(c, Product)[0], Duplicates(c, Product)[2]
	equal(t, "lines", []int{whole.At.Line, whole.End, whole.First.Line, whole.FirstEnd}, []int{8, 21, 7, 20})
	equal(t, "lines", []int{part.At.Line, part.End, part.First.Line, part.FirstEnd}, []int{8, 18, 7, 17})
}

func TestLongFunctions_countsFromFuncToBrace(t *testing.T) {
	function := func(head string, lines int) string {
		return head + " {\n" + strings.Repeat("\tprintln()\n", lines-2) + "}\n\n"
	}
	text := "package p\n\ntype t[T any] struct{}\n\n" + function("func fits()", 60) + function("func (t *t[T]) long()", 61) +
		function("var literal = func()", 62) + "func around() {\n" + function("\tfunc()", 60)[:1] + "}\n"
	var found []string
	for _, f := range LongFunctions(written(t, "p.go", text)) {
		found = append(found, fmt.Sprint(f.Name, " ", f.Lines))
	}
	equal(t, "long functions", strings.Join(found, ", "), "func 62, t.long 61")
	equal(t, "long functions of tests", len(LongFunctions(written(t, "p_test.go", text))), 0)
}

func TestWordUses_areInCommentsAndPages(t *testing.T) {
	var found []string
	for _, u := range WordUses(fixture(t, "checkout")) {
		found = append(found, u.String())
	}
	equal(t, "uses", strings.Join(found, ", "), "doc.go:4 nobody, doc.go:7 tell, doc.go:8 somebody, doc_test.go:6 who, "+
		"README.md:3 somebody, README.md:3 told, README.md:3 who, README.md:4 nobody, README.md:4 told")
}

func TestLinks_areWhatAUserLinks(t *testing.T) {
	c := fixture(t, "links")
	for pkg, want := range map[string]string{".": "[example.com/direct example.com/indirect]", "light": "[]"} {
		got, err := Links(c, pkg)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "links of "+pkg, got, want)
	}
	equal(t, "public packages", PublicPackages(c), []string{".", "direct", "indirect", "light", "tested"})
}

func TestLinks_inAWorkspace(t *testing.T) {
	c := fixture(t, "links")
	work := "go 1.26\n\nuse (\n\t.\n\t./direct\n\t./indirect\n)\n"
	if err := os.WriteFile(filepath.Join(c.Dir, "go.work"), []byte(work), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Read(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for pkg, want := range map[string]string{"direct": "[example.com/indirect]", "tested": "[]"} {
		got, err := Links(c, pkg)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "links of "+pkg, got, want)
	}
}

func TestOver_namesEachLimit(t *testing.T) {
	tangled := PackageFlow{Package: "tangled", References: []Reference{{From: "a.go", To: "b.go", TwoWay: true}, {From: "b.go", To: "a.go", TwoWay: true}}}
	straight := PackageFlow{Package: "straight", References: []Reference{{From: "a.go", To: "b.go"}}}
	c := &Counts{
		Flow: []PackageFlow{tangled, straight}, Duplicates: make([]Block, 2), AllDuplicates: make([]Block, 3),
		Long: make([]Function, 4), Words: make([]Use, 5),
	}
	within := Budget{AgainstPercent: 10, Against: map[string]int{"tangled": 2}, Duplicates: 2, AllDuplicates: 3, Long: 4, Words: 5}
	if over := c.Over(within); len(over) > 0 {
		t.Errorf("a budget that is kept is exceeded: %q", over)
	}
	for want, b := range map[string]Budget{
		"tangled: 2 of 2 references between files point against the flow, which is not below 10 %": {AgainstPercent: 10},
		"tangled: 2 of 2 references between files point against the flow, the budget is 1":         {AgainstPercent: 10, Against: map[string]int{"tangled": 1}},
		"straight: the exception in the budget is not needed":                                      {AgainstPercent: 10, Against: map[string]int{"straight": 1}},
		"gone: the budget has an exception for a package that does not exist":                      {AgainstPercent: 10, Against: map[string]int{"gone": 1}},
		"2 duplicated blocks in the library and the program, the budget is 1":                      {Duplicates: 1},
		"3 duplicated blocks outside tests, the budget is 2":                                       {AllDuplicates: 2},
		"4 functions of more than 60 lines, the budget is 3":                                       {Long: 3},
		"5 words that the style guide replaces, the budget is 4":                                   {Words: 4},
	} {
		if over := strings.Join(c.Over(b), "\n"); !strings.Contains(over, want) {
			t.Errorf("%+v: no %q in:\n%s", b, want, over)
		}
	}
}

func TestWriteTable_putsCheckoutsSideBySide(t *testing.T) {
	counts, err := Count(fixture(t, "checkout"))
	if err != nil {
		t.Fatal(err)
	}
	other := &Counts{Exported: map[string]int{"gone": 7}}
	var text strings.Builder
	if err := WriteTable(&text, []Column{{"old", other}, {"new", counts}}); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(text.String()) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"figure old new",
		"modules linked by a user of root - 0",
		"modules linked by a user of replica - -",
		"words to replace: " + strings.Join(Words, ", ") + " 0 9",
		"gone 7 - - -",
		"twoway - - 2 2 of 4 50 % 1",
	} {
		if !lines[want] {
			t.Errorf("no line %q in:\n%s", want, text.String())
		}
	}
}
