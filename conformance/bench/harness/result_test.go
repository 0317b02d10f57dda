// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/layout/pages"
)

// newCheckout makes a repository with a package and the given page, and makes it the working directory.
func newCheckout(t *testing.T, page string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	folder := t.TempDir()
	for path, text := range map[string]string{
		"wire/wire.go":                  "package wire\n",
		reportFolder + "/" + reportPage: page,
	} {
		file := filepath.Join(folder, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."},
		{
			"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false",
			"commit", "-q", "-m", "a",
		},
	} {
		if out, err := exec.Command("git", append([]string{"-C", folder}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	t.Chdir(folder)
	for _, name := range []string{reportVariable, EnvPods, EnvSeconds, EnvRuns, EnvRate} {
		t.Setenv(name, "")
	}
	return folder
}

func newResultReport() *Report {
	r := newReport()
	r.Measures = []string{"./wire"}
	r.rows = nil
	value := func(x float64) float64 { return x }
	AddRows(r, []Row[float64]{
		{Bar: Bar{Name: "ours"}, Key: Key("Ours, packed"), Reading: 579.8666666},
		{Bar: Bar{Name: "theirs"}, Key: "client-go", Reading: math.NaN()},
		{Bar: Bar{Name: "bare"}, Reading: 1},
	}, Col("bytes", "%.0f", value).As("bytes", "bytes"), Col("same", "%.0f", value))
	r.Value("peak", 2.5, "MB")
	return r
}

func TestReport_writesItsValuesAndInsertsThem(t *testing.T) {
	folder := newCheckout(t, "?<!-- = heap.ours-packed.bytes bytes --> of ?<!-- = heap.peak KB -->\n"+
		"<!-- measured:begin -->\n<!-- measured:end -->\n<!-- heap:begin -->\n<!-- heap:end -->\n")
	var out bytes.Buffer
	if err := newResultReport().Write(&out); err != nil {
		t.Fatal(err)
	}
	results, err := pages.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	heap := results["heap"]
	want := []pages.Value{{Name: "ours-packed.bytes", Value: 579.867, Unit: "bytes"},
		{Name: "peak", Value: 2.5, Unit: "MB"}}
	if !slices.Equal(heap.Values, want) || len(heap.Commit) != 40 || len(heap.Date) != 10 || heap.Machine.Cores == 0 ||
		!slices.Equal(heap.Packages, []string{"./wire"}) {
		t.Errorf("%+v", heap)
	}
	text, err := os.ReadFile(filepath.Join(folder, reportFolder, reportPage))
	if err != nil {
		t.Fatal(err)
	}
	begin := "580 bytes<!-- = heap.ours-packed.bytes bytes --> of 2,500 KB<!-- = heap.peak KB -->\n" +
		"<!-- measured:begin -->\nMeasured values: `heap` of " + heap.Date + " at " + heap.Commit[:7] + ".\n"
	if !strings.HasPrefix(string(text), begin) {
		t.Errorf("%s, want %s", text, begin)
	}
	if got := strings.Count(out.String(), "written to "); got != 3 {
		t.Errorf("%d files: %s", got, out.String())
	}
}

func TestReport_ofASmallerRunHasNoResultFile(t *testing.T) {
	folder := newCheckout(t, "<!-- heap:begin -->\n<!-- heap:end -->\n")
	r := newResultReport()
	r.Partial = true
	if err := r.Publish(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if results, err := pages.Read(folder); err != nil || len(results) > 0 {
		t.Errorf("%v, %v", results, err)
	}
}

func TestReport_inAnotherFolderLeavesThePages(t *testing.T) {
	folder := newCheckout(t, "?<!-- = heap.peak -->\n<!-- measured:begin -->\n<!-- measured:end -->\n")
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, reportPage), []byte("<!-- heap:begin -->\n<!-- heap:end -->\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(reportVariable, other)
	if err := newResultReport().Publish(&bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(other, "results", "heap.json")); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, reportFolder, reportPage))
	if err != nil || !strings.HasPrefix(string(text), "?<!-- ") {
		t.Errorf("%s, %v", text, err)
	}
}
