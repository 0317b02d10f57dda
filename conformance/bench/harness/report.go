// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	// reportVariable is the folder of the page to write to. Default: a complete run
	// writes to the page of the checkout, and a smaller one writes nowhere, because its
	// numbers are not for publication.
	reportVariable = "WATERSHED_REPORT"
	// reportFolder is the folder of the page in the checkout.
	reportFolder = "docs/performance"
	// reportPage is the name of the page.
	reportPage = "README.md"
)

// Report is the result of a benchmark, for the terminal and for the page: a heading, a
// table and a figure.
type Report struct {
	// Name is the name of the benchmark.
	Name    string
	Heading string
	// Columns are the headings of the table.
	Columns []string
	Figure  Figure
	// Server is the version of the API server, "" if there was none.
	Server string
	// Partial means that the results are not complete, so that they are not published.
	Partial bool
	rows    [][]string
}

// Row adds a row to the table. Its first cell is the name of a subject.
func (r *Report) Row(cells ...string) { r.rows = append(r.rows, cells) }

// Write prints the report and, if the run was complete, inserts it into the page.
func (r *Report) Write(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n%s\n", r.Heading, r.table())
	folder, err := r.folder()
	if err != nil || folder == "" {
		return err
	}
	page := filepath.Join(folder, reportPage)
	if err := r.insert(page); err != nil {
		return err
	}
	picture := r.Figure.SVG()
	if err := os.WriteFile(filepath.Join(folder, r.Name+".svg"), picture, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "written to %s\n", page)
	return nil
}

// table returns the table in Markdown, aligned for reading as text.
func (r *Report) table() string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	line := func(cells []string) { fmt.Fprintf(w, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	rule := make([]string, len(r.Columns))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	line(r.Columns)
	line(rule)
	for _, cells := range r.rows {
		line(cells)
	}
	_ = w.Flush() // to a buffer
	return b.String()
}

// folder returns the folder of the page to write to, "" for none.
func (r *Report) folder() (string, error) {
	if folder := os.Getenv(reportVariable); folder != "" {
		return folder, nil
	}
	if r.Partial {
		return "", nil
	}
	for _, name := range []string{EnvPods, EnvSeconds, EnvRuns, EnvRate} {
		if os.Getenv(name) != "" {
			return "", nil
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		folder := filepath.Join(dir, reportFolder)
		_, err := os.Stat(filepath.Join(folder, reportPage))
		if err == nil {
			return folder, nil
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return "", err
		}
		dir = parent
	}
}

// insert replaces the text between the report's marks in the page.
func (r *Report) insert(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+r.Name+":begin -->\n", "<!-- "+r.Name+":end -->"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no place for %s: %s…%s", page, r.Name, strings.TrimSpace(begin), end)
	}
	own := fmt.Sprintf("![%s](%s.svg)\n\n%s\n%s %s\n", r.Figure.Title, r.Name, r.table(), r.Heading, r.circumstances())
	return os.WriteFile(page, []byte(before+begin+own+end+after), 0o644)
}

// circumstances returns what the numbers depend on besides the code: versions, machine
// and date.
func (r *Report) circumstances() string {
	var parts []string
	if r.Server != "" {
		parts = append(parts, "Kubernetes "+r.Server)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/client-go" {
				parts = append(parts, "client-go "+m.Version)
			}
		}
	}
	parts = append(parts, "Go "+strings.TrimPrefix(runtime.Version(), "go"), fmt.Sprintf("%d processors", runtime.NumCPU()))
	if model := procValue("/proc/cpuinfo", "model name"); model != "" {
		parts[len(parts)-1] += " of " + model
	}
	if total, err := strconv.Atoi(strings.TrimSuffix(procValue("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		parts = append(parts, fmt.Sprintf("%.0f GB", float64(total)*1024/1e9))
	}
	return strings.Join(append(parts, time.Now().UTC().Format(time.DateOnly)), ", ") + "."
}
