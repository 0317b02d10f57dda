// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/watershed-project/watershed/internal/layout/pages"
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

// Report is the result of a benchmark: a heading, a table, a figure for the page, and a
// line for scripts.
type Report struct {
	// Name is the name of the benchmark.
	Name    string
	Heading string
	// Columns are the headings of the table.
	Columns []string
	// Figure is drawn for the page. A report whose figure has no title is only for the terminal.
	Figure Figure
	// Summary is the last line. It begins with the name of the benchmark.
	Summary string
	// Server is the version of the API server, "" if there was none.
	Server string
	// Measures are the measured packages, for the result file.
	Measures []string
	// Partial means that the results are not complete, so that they are not published.
	Partial bool
	rows    [][]string
	values  []pages.Value
}

// Row is a row of a table: the reading of a subject.
type Row[R any] struct {
	// Bar is the subject. Its name is in the first cell and in the figure.
	Bar
	// Cells replaces the name by one or more cells.
	Cells []string
	// Key is what the names of the row's values begin with, "" if they have no names.
	Key     string
	Reading R
	// Missing means that there is no reading: the figure says so, and the table has no row.
	Missing bool
}

// Column is a column of a table: a number of each reading.
type Column[R any] struct {
	Name string
	Form Form
	// Value returns the number. NaN is an empty cell.
	Value func(R) float64
	// Panel is the title of the panel that the column has in the figure, "" for none.
	Panel string
	// key and unit name the values in the result file, see [Column.As].
	key, unit string
}

// Col returns a column, with the title of its panel if there is one.
func Col[R any, N int | int64 | uint64 | float64](name string, f Form, value func(R) N, panel ...string) Column[R] {
	number := func(r R) float64 { return float64(value(r)) }
	return Column[R]{Name: name, Form: f, Value: number, Panel: strings.Join(panel, "")}
}

// Ms returns a column of durations in milliseconds.
func Ms[R any](name string, f Form, value func(R) time.Duration, panel ...string) Column[R] {
	return Col(name, f, func(r R) float64 { return InMilliseconds(value(r)) }, panel...)
}

// Row adds a row to the table. Its first cell is the name of a subject.
func (r *Report) Row(cells ...string) { r.rows = append(r.rows, cells) }

// AddRows adds readings to the table of a report, and panels to its figure. The first call
// adds the headings of the columns behind those that the report has, which are those of the
// first cells, and the subjects of the figure.
func AddRows[R any](r *Report, rows []Row[R], columns ...Column[R]) {
	if len(r.rows) == 0 {
		for _, c := range columns {
			r.Columns = append(r.Columns, c.Name)
		}
	}
	first := len(r.Figure.Panels) == 0
	panels := make([]Panel, len(columns))
	for _, row := range rows {
		if first {
			r.Figure.Subjects = append(r.Figure.Subjects, row.Bar)
		}
		cells := row.Cells
		if len(cells) == 0 {
			cells = []string{row.Name}
		}
		for i, c := range columns {
			if row.Missing {
				panels[i].Add(0, "not measured")
				continue
			}
			value, text := c.Value(row.Reading), ""
			if !math.IsNaN(value) {
				text = c.Form.text(value)
			}
			if row.Key != "" && c.key != "" {
				r.Value(row.Key+"."+c.key, value, c.unit)
			}
			cells = append(cells, text)
			panels[i].Add(value, Thousands(text))
		}
		if !row.Missing {
			r.Row(cells...)
		}
	}
	for i, c := range columns {
		if panels[i].Title = c.Panel; c.Panel != "" {
			r.Figure.Panels = append(r.Figure.Panels, panels[i])
		}
	}
}

// Write prints the report and, if the run was complete, inserts it into the page and writes its result file.
func (r *Report) Write(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n%s\n", r.Heading, r.table())
	if err := r.Publish(out); err != nil {
		return err
	}
	if r.Summary != "" {
		fmt.Fprintln(out, r.Summary)
	}
	return nil
}

// Publish inserts the report into the page and writes its result file, if the run was complete. A report without a
// figure is not inserted, and one without named values has no file.
func (r *Report) Publish(out io.Writer) error {
	folder, err := r.folder()
	if err != nil || folder == "" || r.Figure.Title == "" && len(r.values) == 0 {
		return err
	}
	if r.Figure.Title != "" {
		page := filepath.Join(folder, reportPage)
		if err := r.insert(page); err != nil {
			return err
		}
		picture := r.Figure.SVG()
		if err := os.WriteFile(filepath.Join(folder, r.Name+".svg"), picture, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "written to %s\n", page)
	}
	if len(r.values) > 0 {
		if err := r.record(out, folder); err != nil {
			return err
		}
	}
	if r.Summary != "" {
		fmt.Fprintln(out)
	}
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
	parts = append(parts, "Go "+strings.TrimPrefix(runtime.Version(), "go"),
		fmt.Sprintf("%d processors", runtime.NumCPU()))
	if model := procValue("/proc/cpuinfo", "model name"); model != "" {
		parts[len(parts)-1] += " of " + model
	}
	if total, err := strconv.Atoi(strings.TrimSuffix(procValue("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		parts = append(parts, fmt.Sprintf("%.0f GB", float64(total)*1024/1e9))
	}
	return strings.Join(append(parts, time.Now().UTC().Format(time.DateOnly)), ", ") + "."
}
