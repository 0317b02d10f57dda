// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/internal/document"
)

// gap is the number of spaces between two columns, as in kubectl.
const gap = 3

// column is a column of the table.
type column struct {
	title string
	// wide columns are shown with -o wide only.
	wide bool
	// varies means that the value changes all the time, and a change of it is not news.
	varies bool
	value  func(r *Report, c *document.Cluster) string
}

// columns are the columns of the table, from left to right.
var columns = []column{
	{title: "NAME", value: func(_ *Report, c *document.Cluster) string { return c.Name }},
	{title: "STATE", value: func(_ *Report, c *document.Cluster) string { return c.State }},
	{title: "VERSION", value: func(_ *Report, c *document.Cluster) string { return orNone(c.Version) }},
	{
		title: "RESOURCES",
		value: func(_ *Report, c *document.Cluster) string { return fmt.Sprintf("%d/%d", c.Synced, c.Resources) },
	},
	{title: "OBJECTS", varies: true, value: func(_ *Report, c *document.Cluster) string {
		if c.Expected > c.Objects {
			return fmt.Sprintf("%d/%d", c.Objects, c.Expected)
		}
		return fmt.Sprint(c.Objects)
	}},
	{title: "MEMORY", varies: true, value: func(_ *Report, c *document.Cluster) string { return size(c.Memory) }},
	{
		title:  "READERS",
		varies: true,
		value:  func(_ *Report, c *document.Cluster) string { return fmt.Sprint(c.Readers) },
	},
	{
		title:  "HEARD",
		varies: true,
		value:  func(r *Report, c *document.Cluster) string { return orNone(r.age(c.Heard)) },
	},
	{
		title:  "QUEUED",
		wide:   true,
		varies: true,
		value:  func(_ *Report, c *document.Cluster) string { return fmt.Sprint(c.Queued) },
	},
	{
		title:  "QUIET",
		wide:   true,
		varies: true,
		value:  func(r *Report, c *document.Cluster) string { return orNone(r.age(c.Quiet)) },
	},
	{
		title:  "LATENCY",
		wide:   true,
		varies: true,
		value:  func(_ *Report, c *document.Cluster) string { return seconds(c.Latency) },
	},
	{
		title:  "CLOCK",
		wide:   true,
		varies: true,
		value:  func(_ *Report, c *document.Cluster) string { return fmt.Sprintf("%+gs", c.ClockSkew) },
	},
	{
		title: "ALIASES",
		wide:  true,
		value: func(_ *Report, c *document.Cluster) string { return orNone(strings.Join(c.Aliases, ",")) },
	},
	{title: "UID", wide: true, value: func(_ *Report, c *document.Cluster) string { return orNone(c.UID) }},
	{title: "STALE", varies: true, value: func(r *Report, c *document.Cluster) string { return orNone(r.stale(c)) }},
	{title: "PROBLEM", value: func(_ *Report, c *document.Cluster) string { return orNone(problem(c)) }},
}

// stale returns for how long a cluster has not been current, "" if it is.
func (r *Report) stale(c *document.Cluster) string {
	if c.State == "live" || c.State == "syncing" {
		return ""
	}
	return r.age(c.Since)
}

// problem returns the reason of a cluster's first problem, and the number of others.
func problem(c *document.Cluster) string {
	if len(c.Problems) == 0 {
		return ""
	}
	text := c.Problems[0].Reason
	if more := len(c.Problems) - 1; more > 0 {
		text += fmt.Sprintf(" (+%d)", more)
	}
	return text
}

// seconds returns a number of seconds as a duration.
func seconds(n float64) string {
	if n == 0 {
		return "<none>"
	}
	d := time.Duration(n * float64(time.Second))
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// orNone returns what kubectl prints for an empty value.
func orNone(text string) string { return cmp.Or(text, "<none>") }

// Table is the table of a report.
type Table struct {
	columns []column
	// widths are those of the columns in characters.
	widths []int
	// Color uses colours for states.
	Color bool
}

// NewTable returns a table that is wide enough for a report.
func NewTable(r *Report, wide bool) *Table {
	t := &Table{}
	for _, c := range columns {
		if c.wide && !wide {
			continue
		}
		width := len(c.title)
		for i := range r.Clusters.Clusters {
			width = max(width, utf8.RuneCountInString(c.value(r, &r.Clusters.Clusters[i])))
		}
		t.columns, t.widths = append(t.columns, c), append(t.widths, width)
	}
	return t
}

// Header returns the titles.
func (t *Table) Header() string {
	return t.line(func(i int) string { return t.columns[i].title })
}

// Row returns the line of a cluster.
func (t *Table) Row(r *Report, c *document.Cluster) string {
	return t.line(func(i int) string { return t.columns[i].value(r, c) })
}

// news returns what must change for the line of a cluster to be news.
func (t *Table) news(r *Report, c *document.Cluster) string {
	return t.line(func(i int) string {
		if t.columns[i].varies {
			return ""
		}
		return t.columns[i].value(r, c)
	})
}

// line returns the values of all columns, aligned.
func (t *Table) line(value func(i int) string) string {
	var b strings.Builder
	for i := range t.columns {
		text := value(i)
		width := utf8.RuneCountInString(text)
		if t.Color {
			text = colored(text)
		}
		b.WriteString(text)
		if i < len(t.columns)-1 {
			b.WriteString(strings.Repeat(" ", max(t.widths[i]-width, 0)+gap))
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// colored returns a state in its colour, and other values as they are.
func colored(text string) string {
	switch text {
	case "live":
		return terminal.Green.Text(text)
	case "stale", "gone":
		return terminal.Red.Text(text)
	case "syncing", "connecting":
		return terminal.Yellow.Text(text)
	}
	return text
}
