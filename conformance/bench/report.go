// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
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

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// reportVariable names the folder of the page to write to. Without it a whole run
// writes to the page of the checkout, and a smaller one to none: its figures are not
// for readers.
const reportVariable = "WATERSHED_REPORT"

const (
	reportFolder = "docs/performance"
	reportPage   = "README.md"
)

// report is what a benchmark found, for the terminal and for the page: a heading, a
// table, a figure.
type report struct {
	name    string
	heading string
	columns []string
	rows    [][]string
	figure  figure
	// server is the version of the API server, "" if there was none.
	server string
	// part says that this is less than the page has.
	part bool
}

// row adds a row; its first cell is the name of a subject.
func (r *report) row(cells ...string) { r.rows = append(r.rows, cells) }

// write prints the report and puts it into the page.
func (r *report) write(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n%s\n", r.heading, r.table())
	folder, err := r.folder()
	if err != nil || folder == "" {
		return err
	}
	page := filepath.Join(folder, reportPage)
	if err := r.insert(page); err != nil {
		return err
	}
	picture, err := r.figure.svg()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, r.name+".svg"), picture, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "written to %s\n", page)
	return nil
}

func (r *report) table() string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	line := func(cells []string) { fmt.Fprintf(w, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	rule := make([]string, len(r.columns))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	line(r.columns)
	line(rule)
	for _, cells := range r.rows {
		line(cells)
	}
	_ = w.Flush() // to a buffer
	return b.String()
}

// folder is where to write, "" for nowhere.
func (r *report) folder() (string, error) {
	if folder := os.Getenv(reportVariable); folder != "" {
		return folder, nil
	}
	if r.part {
		return "", nil
	}
	for _, name := range []string{podsVariable, secondsVariable, runsVariable, rateVariable} {
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

// insert replaces what is between the report's marks in the page.
func (r *report) insert(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+r.name+":begin -->\n", "<!-- "+r.name+":end -->"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no place for %s: %s…%s", page, r.name, strings.TrimSpace(begin), end)
	}
	own := fmt.Sprintf("![%s](%s.svg)\n\n%s\n%s %s\n", r.figure.title, r.name, r.table(), r.heading, r.circumstances())
	return os.WriteFile(page, []byte(before+begin+own+end+after), 0o644)
}

// circumstances are what the figures depend on besides the code.
func (r *report) circumstances() string {
	var parts []string
	if r.server != "" {
		parts = append(parts, "Kubernetes "+r.server)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/client-go" {
				parts = append(parts, "client-go "+m.Version)
			}
		}
	}
	parts = append(parts, "Go "+strings.TrimPrefix(runtime.Version(), "go"), fmt.Sprintf("%d processors", runtime.NumCPU()))
	if model := proc("/proc/cpuinfo", "model name"); model != "" {
		parts[len(parts)-1] += " of " + model
	}
	if total, err := strconv.Atoi(strings.TrimSuffix(proc("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		parts = append(parts, fmt.Sprintf("%.0f GB", float64(total)*1024/1e9))
	}
	return strings.Join(append(parts, time.Now().UTC().Format(time.DateOnly)), ", ") + "."
}

// proc is the value of the first line of a file of /proc with that name, "" where
// there is none.
func proc(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// serverVersion is what the API server says it is.
func serverVersion(cfg *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", err
	}
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return v.GitVersion, nil
}

// megabytes is a table's cell.
func megabytes(bytes float64) string { return strconv.FormatFloat(bytes/1e6, 'f', 0, 64) }
