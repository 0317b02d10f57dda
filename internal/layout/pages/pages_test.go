// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pages

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var testResults = Results{
	"heap": {
		Date: "2026-11-17", Commit: "6f7c0586f97d8d053b4ae1b89c4328d2584ef65c", Packages: []string{"."},
		Values: []Value{
			{"packed.bytes", 579.867, "bytes"}, {"client-go.bytes", 15925, "bytes"}, {"pods", 30000, ""},
			{"list", 389.6, "ms"}, {"share", 0.034, ""}, {"cpu", 0.8, "cores"}, {"small", 0.00012, "s"},
			{"exact", 999.96, "ms"}, {"growth", -2000, "bytes"},
		},
	},
	"list": {
		Date: "2026-11-18", Commit: "1a2b3c4d-dirty", Packages: []string{"./cmd/watershed"},
		Values: []Value{{"list", 2.53, "s"}},
	},
}

func TestExpressions(t *testing.T) {
	for expression, want := range map[string]string{
		"heap.packed.bytes":                           "580",
		"heap.packed.bytes .1":                        "579.9",
		"heap.packed.bytes bytes":                     "580 bytes",
		"heap.packed.bytes 字节":                        "580 字节",
		"heap.client-go.bytes":                        "15,925",
		"heap.client-go.bytes KB .1":                  "15.9 KB",
		"heap.client-go.bytes/heap.packed.bytes x .1": "27.5x",
		"heap.client-go.bytes/heap.packed.bytes":      "27.5",
		"list.list/heap.list times .1":                "6.5 times",
		"heap.list/list.list %":                       "15.4 %",
		"heap.packed.bytes*heap.pods MB .0":           "17 MB",
		"heap.list/heap.pods us":                      "13 us",
		"heap.list s .2":                              "0.39 s",
		"heap.list s":                                 "0.39 s",
		"heap.list (s)":                               "0.39",
		"heap.share % .0":                             "3 %",
		"heap.cpu cores":                              "0.8 cores",
		"heap.small":                                  "0.00012",
		"heap.exact":                                  "1,000",
		"heap.growth":                                 "-2,000",
	} {
		if got, _, err := testResults.eval(expression); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", expression, got, want, err)
		}
	}
	for expression, want := range map[string]string{
		"":                              "without a value",
		"heap.gone":                     "heap.json does not have it",
		"gone.list":                     "gone.json does not have it",
		"heap.list GB":                  "never GB",
		"heap.list lightyears":          "not a unit",
		"heap.list s ms":                "not a unit",
		"heap.list .x":                  "not a number of decimals",
		"heap.list ()":                  "not a unit",
		"heap.list/heap.packed.bytes":   "do not fit",
		"heap.list*heap.packed.bytes":   "do not fit",
		"heap.list/heap.list/heap.list": "does not have it",
	} {
		if got, _, err := testResults.eval(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %q, %v; want an error with %q", expression, got, err, want)
		}
	}
}

const testPage = `# Page

- **?<!-- = heap.packed.bytes bytes -->** of heap, [12 s<!-- = heap.list s --> instead of 1,000<!-- = list.list -->](a.md).

| ours | theirs |
| --- | ---: |
| 1.5 MB<!-- = heap.packed.bytes --> | ?<!-- = list.list/heap.list x .0 --> |

<!-- measured:begin -->
<!-- measured:end -->
`

const insertedPage = `# Page

- **580 bytes<!-- = heap.packed.bytes bytes -->** of heap, [0.39 s<!-- = heap.list s --> instead of 2.53<!-- = list.list -->](a.md).

| ours | theirs |
| --- | ---: |
| 580<!-- = heap.packed.bytes --> | 6x<!-- = list.list/heap.list x .0 --> |

<!-- measured:begin -->
` + "Measured values: `heap` of 2026-11-17 at 6f7c058 (the code has changed since); `list` of 2026-11-18 at 1a2b3c4-dirty." + `
<!-- measured:end -->
`

func TestInsert(t *testing.T) {
	onlyHeap := func(name string) bool { return name == "heap" }
	got, err := testResults.Insert("page.md", testPage, onlyHeap)
	if err != nil || got != insertedPage {
		t.Fatalf("%s, %v", got, err)
	}
	marks := Marked("page.md", got)
	if !maps.Equal(marks, map[string]bool{"heap": true}) {
		t.Errorf("marked are %v", marks)
	}
	if again, err := testResults.Insert("page.md", got, func(name string) bool { return marks[name] }); again != got {
		t.Errorf("a second insertion changes the page: %s, %v", again, err)
	}
	if WithoutValues(got) != WithoutValues(testPage) || WithoutValues(got) == got {
		t.Errorf("without values: %s", WithoutValues(got))
	}
	if want := []string{"heap.packed.bytes bytes", "heap.list s"}; !slices.Equal(Markers(got)[:2], want) {
		t.Errorf("%q", Markers(got))
	}
	chinaPage, err := testResults.Insert("page.zh-CN.md", testPage, onlyHeap)
	want := "测量值：`heap`，2026-11-17，提交 6f7c058（此后代码有改动）；`list`，2026-11-18，提交 1a2b3c4-dirty。\n"
	if err != nil || !strings.Contains(chinaPage, want) {
		t.Errorf("%s, %v", chinaPage, err)
	}
	if marks := Marked("page.zh-CN.md", chinaPage); !maps.Equal(marks, map[string]bool{"heap": true}) {
		t.Errorf("marked are %v", marks)
	}
}

func TestInsert_groupsByCommit(t *testing.T) {
	same := Results{"a": testResults["heap"], "b": testResults["heap"]}
	page := "1<!-- = b.list -->, 2<!-- = a.list -->\n<!-- measured:begin -->\n<!-- measured:end -->\n"
	got, err := same.Insert("page.md", page, func(string) bool { return false })
	if want := "Measured values: `a`, `b` of 2026-11-17 at 6f7c058.\n"; !strings.Contains(got, want) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestInsert_failsWithoutItsPlaces(t *testing.T) {
	for page, want := range map[string]string{
		"1<!-- = heap.list -->": "needs the lines",
		"one<!-- = heap.list -->\n<!-- measured:begin -->\n<!-- measured:end -->":       "1 of 1 markers",
		"1 second<!-- = heap.list -->\n<!-- measured:begin -->\n<!-- measured:end -->":  "1 of 1 markers",
		"1<!-- = heap.nothing -->\n<!-- measured:begin -->\n<!-- measured:end -->":      "does not have it",
		"1<!-- = heap.list -->\n<!-- measured:begin -->\nMeasured values: no end of it": "needs the lines",
	} {
		if got, err := testResults.Insert("page.md", page, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", page, got, err, want)
		}
	}
	if got, err := testResults.Insert("page.md", "4 GB\n", nil); err != nil || got != "4 GB\n" {
		t.Errorf("a page without values: %q, %v", got, err)
	}
}

func TestInsertFacts(t *testing.T) {
	c := checkout(t.TempDir())
	c.write(t, "go.mod", "module m\n\ngo 1.26.3\n\nrequire (\n\tk8s.io/client-go v0.37.1\n)\n")
	c.write(t, "deploy/helm/watershed/values.yaml",
		"config:\n  mirror:\n    resources:\n      - pods\n      - nodes\nx: 1\n")
	c.write(t, "docs/compat.md", "4206 of 4361 requests equal\n\n4349 of 4361 requests equal with `--pass-through`\n")
	c.write(t, "docs/servers.md", "<!-- support table: written by make -->\n| Kubernetes |\n| v1.37.1 | pass |\n"+
		"| v1.34.4 | pass |\n| v1.31.0 | pass |\n<!-- end of the support table -->\n| v1.30.0 | no |\n")
	page := "Go ?<!-- @ go -->, v0.1<!-- @ client-go -->, 1 of ?<!-- @ chart.resources --> resources\n" +
		"?<!-- @ compat.equal -->, ?<!-- @ compat.pass-through --> of 4,000<!-- @ compat.sent -->; " +
		"?<!-- @ kubernetes.tested-oldest --> to ?<!-- @ kubernetes.tested-newest -->\n"
	want := "Go 1.26<!-- @ go -->, v0.37.1<!-- @ client-go -->, 1 of 2<!-- @ chart.resources --> resources\n" +
		"4,206<!-- @ compat.equal -->, 4,349<!-- @ compat.pass-through --> of 4,361<!-- @ compat.sent -->; " +
		"1.31.0<!-- @ kubernetes.tested-oldest --> to 1.37.1<!-- @ kubernetes.tested-newest -->\n"
	got, err := InsertFacts(string(c), "page.md", page)
	if err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	if WithoutValues(got) != WithoutValues(page) || WithoutValues(got) == got {
		t.Errorf("without facts: %s", WithoutValues(got))
	}
	for page, want := range map[string]string{
		"one<!-- @ go -->":                "1 of 1 facts",
		"1<!-- @ nothing -->":             "facts.go does not have it",
		"1<!-- @ disk.format -->":         "no such file",
		"1<!-- @ controller-runtime -->.": "no such file",
	} {
		if _, err := InsertFacts(string(c), "page.md", page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", page, err, want)
		}
	}
	c.write(t, "go.mod", "module m\n")
	if _, err := InsertFacts(string(c), "page.md", "1<!-- @ go -->"); err == nil ||
		!strings.Contains(err.Error(), "go.mod does not have it") {
		t.Errorf("a file without the fact: %v", err)
	}
}

func TestResults_areChecked(t *testing.T) {
	good := testResults["heap"]
	if err := good.check(); err != nil {
		t.Error(err)
	}
	with := func(values ...Value) Result {
		return Result{Date: good.Date, Commit: good.Commit, Packages: good.Packages, Values: values}
	}
	for want, r := range map[string]Result{
		"are required":      {Date: good.Date, Commit: good.Commit, Values: good.Values},
		"used twice":        with(Value{"a", 1, ""}, Value{"a", 2, ""}),
		"lower-case":        with(Value{"A b", 1, ""}),
		`unknown unit "kb"`: with(Value{"a", 1, "kb"}),
	} {
		if err := r.Write(t.TempDir(), "heap"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// checkout is a repository in a temporary folder.
type checkout string

func newCheckout(t *testing.T) checkout {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	c := checkout(t.TempDir())
	c.git(t, "init", "-q")
	return c
}

func (c checkout) git(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{
		"-C", string(c), "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false",
	}, args...)
	out, err := exec.Command("git", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (c checkout) write(t *testing.T, path, text string) {
	t.Helper()
	file := filepath.Join(string(c), filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (c checkout) commit(t *testing.T) string {
	t.Helper()
	c.git(t, "add", ".")
	c.git(t, "commit", "-q", "-m", "a")
	return c.git(t, "rev-parse", "HEAD")
}

func TestChanged_concernsWhatIsMeasured(t *testing.T) {
	c := newCheckout(t)
	c.write(t, "root.go", "package watershed\n\nimport _ \""+module+"/wire\"\n")
	c.write(t, "wire/wire.go", "package wire\n")
	c.write(t, "replica/replica.go", "package replica\n\nimport _ \""+module+"\"\n")
	first := c.commit(t)
	results := Results{
		"replica": {Commit: first, Packages: []string{"./replica"}},
		"wire":    {Commit: first, Packages: []string{"./wire"}},
		"dirty":   {Commit: first + "-dirty", Packages: []string{"./wire"}},
		"unknown": {Commit: strings.Repeat("0", 40), Packages: []string{"./wire"}},
		"gone":    {Commit: first, Packages: []string{"./gone"}},
	}
	expect := func(when string, want ...string) {
		t.Helper()
		changed, err := results.Changed(string(c))
		maps.DeleteFunc(changed, func(_ string, is bool) bool { return !is })
		want = append(want, "dirty", "gone", "unknown")
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(changed)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v changed, want %v (%v)", when, got, want, err)
		}
	}
	expect("at the commit")
	c.write(t, "wire/wire_test.go", "package wire\n")
	c.write(t, "README.md", "# Page\n")
	c.write(t, "other/other.go", "package other\n")
	second := c.commit(t)
	expect("after a test, a page and another package")
	if commit, err := Commit(string(c)); err != nil || commit != second {
		t.Errorf("%s, %v", commit, err)
	}
	c.write(t, "replica/replica.go", "package replica\n\nimport _ \""+module+"\"\n\n// More.\n")
	expect("after the package", "replica")
	if commit, err := Commit(string(c)); err != nil || commit != second+"-dirty" {
		t.Errorf("%s, %v", commit, err)
	}
	results["replica"] = Result{Commit: c.commit(t), Packages: []string{"./replica"}}
	expect("measured again")
	c.write(t, "wire/more.go", "package wire\n")
	c.commit(t)
	expect("after a package that the root imports", "replica", "wire")
}

func TestUpdate_writesThePagesThatDiffer(t *testing.T) {
	c := newCheckout(t)
	c.write(t, "wire/wire.go", "package wire\n")
	commit := c.commit(t)
	r := Result{Date: "2026-11-17", Commit: commit, Packages: []string{"./wire"}, Values: []Value{{"heap", 1.5, "MB"}}}
	if err := r.Write(filepath.Join(string(c), Folder), "wire"); err != nil {
		t.Fatal(err)
	}
	block := "\n<!-- measured:begin -->\n<!-- measured:end -->\n"
	c.write(t, "docs/page.md", "?<!-- = wire.heap KB -->"+block)
	c.write(t, "testdata/page.md", "?<!-- = wire.heap KB -->"+block)
	c.write(t, "README.md", "4 GB\n")
	written, err := Update(string(c))
	if err != nil || !slices.Equal(written, []string{"docs/page.md"}) {
		t.Errorf("%q, %v", written, err)
	}
	text, err := os.ReadFile(filepath.Join(string(c), "docs/page.md"))
	want := "1,500 KB<!-- = wire.heap KB -->\n<!-- measured:begin -->\nMeasured values: `wire` of 2026-11-17 at " +
		commit[:7] + ".\n<!-- measured:end -->\n"
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	if written, err := Update(string(c)); err != nil || len(written) > 0 {
		t.Errorf("again: %q, %v", written, err)
	}
}
