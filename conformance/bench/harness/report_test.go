// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func newReport() *Report {
	r := &Report{
		Name: "heap", Heading: "Two pods.", Columns: []string{"reader", "bytes"}, Server: "v1.37.1",
		Figure: Figure{
			Title:    "Memory",
			Subjects: []Bar{{"ours", ColourOurs}},
			Panels:   []Panel{{"bytes", []float64{1}, []string{"1"}}},
		},
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
	if err := os.WriteFile(page, []byte("# Page\n<!-- heap:begin -->\nold\n<!-- heap:end -->\nrest\n"),
		0o644); err != nil {
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
	begin, end := "# Page\n<!-- heap:begin -->\n![Memory](heap.svg)\n\n"+reportTable+"\nTwo pods. Kubernetes v1.37.1, ",
		".\n<!-- heap:end -->\nrest\n"
	if !strings.HasPrefix(string(text), begin) || !strings.HasSuffix(string(text), end) {
		t.Errorf("%s", text)
	}
	if svg, err := os.ReadFile(filepath.Join(folder, "heap.svg")); err != nil ||
		!bytes.Equal(svg, newReport().Figure.SVG()) {
		t.Errorf("%s, %v", svg, err)
	}
}

func TestReport_ofColumns(t *testing.T) {
	r := &Report{Name: "test", Heading: "Two pods.", Columns: []string{"reader"}, Summary: "test: bytes=1"}
	value := func(x float64) float64 { return x }
	rows := []Row[float64]{
		{Bar: Bar{Name: "ours", Colour: ColourOurs}, Reading: 1234},
		{Bar: Bar{Name: "client-go"}, Cells: []string{"theirs"}, Reading: math.NaN()},
		{Bar: Bar{Name: "bare"}, Missing: true},
	}
	AddRows(r, rows, Col("bytes", "%.0f", value, "memory, bytes"), Col("kB", "%.1f", func(x float64) float64 {
		return x / 1e3
	}))
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := `Two pods.

| reader | bytes | kB   |
| ---    | ---:  | ---: |
| ours   | 1234  | 1.2  |
| theirs |       |      |

test: bytes=1
`
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
	p := r.Figure.Panels
	if len(p) != 1 || p[0].Title != "memory, bytes" ||
		!slices.Equal(p[0].Labels, []string{"1,234", "", "not measured"}) || p[0].Values[0] != 1234 {
		t.Errorf("%+v", p)
	}
	if s := r.Figure.Subjects; len(s) != 3 || s[0] != rows[0].Bar || s[1].Name != "client-go" {
		t.Errorf("%+v", s)
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
