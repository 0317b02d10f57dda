// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newReport() *Report {
	r := &Report{
		Name: "heap", Heading: "Two pods.", Columns: []string{"reader", "bytes"}, Server: "v1.37.1",
		Figure: Figure{Title: "Memory", Subjects: []Bar{{"ours", ColourOurs}}, Panels: []Panel{{"bytes", []float64{1}, []string{"1"}}}},
	}
	r.Row("ours", "1")
	r.Row("client-go", "1,000")
	return r
}

const reportTable = `| reader    | bytes |
| ---       | ---:  |
| ours      | 1     |
| client-go | 1,000 |
`

func TestReport_isInsertedIntoThePage(t *testing.T) {
	folder := t.TempDir()
	page := filepath.Join(folder, reportPage)
	if err := os.WriteFile(page, []byte("# Page\n<!-- heap:begin -->\nold\n<!-- heap:end -->\nrest\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(reportVariable, folder)
	var out bytes.Buffer
	if err := newReport().Write(&out); err != nil {
		t.Fatal(err)
	}
	if want := "Two pods.\n\n" + reportTable + "\nwritten to " + page + "\n"; out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "# Page\n<!-- heap:begin -->\n![Memory](heap.svg)\n\n"+reportTable+"\nTwo pods. Kubernetes v1.37.1, ", ".\n<!-- heap:end -->\nrest\n"
	if !strings.HasPrefix(string(text), begin) || !strings.HasSuffix(string(text), end) {
		t.Errorf("%s", text)
	}
	if svg, err := os.ReadFile(filepath.Join(folder, "heap.svg")); err != nil || !bytes.Equal(svg, newReport().Figure.SVG()) {
		t.Errorf("%s, %v", svg, err)
	}
}

func TestReport_needsAPlaceInThePage(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, reportPage), []byte("# Page\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(reportVariable, folder)
	if err := newReport().Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "heap") {
		t.Error(err)
	}
}

func TestReport_ofASmallerRunIsNotPublished(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, reportFolder)
	below := filepath.Join(root, "conformance", "bench")
	for _, dir := range []string{folder, below} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, reportPage), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	for _, name := range []string{reportVariable, EnvPods, EnvSeconds, EnvRuns, EnvRate} {
		t.Setenv(name, "")
	}
	r := newReport()
	if got, err := r.folder(); err != nil || got != folder {
		t.Errorf("a complete run writes to %q, %v", got, err)
	}
	r.Partial = true
	if got, err := r.folder(); err != nil || got != "" {
		t.Errorf("a partial run writes to %q, %v", got, err)
	}
	r.Partial = false
	for _, name := range []string{EnvPods, EnvSeconds, EnvRuns, EnvRate} {
		t.Setenv(name, "1")
		if got, err := r.folder(); err != nil || got != "" {
			t.Errorf("a run with %s writes to %q, %v", name, got, err)
		}
		t.Setenv(name, "")
	}
}
