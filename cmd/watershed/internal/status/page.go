// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package status

import (
	"fmt"
	"maps"
	"slices"

	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/internal/document"
)

// Lines returns the whole report: the table, the problems with what to do, and the totals.
func (r *Report) Lines(wide, color bool) []string {
	t := NewTable(r, wide)
	t.Color = color
	var lines []string
	if len(r.Clusters.Clusters) > 0 {
		lines = append(lines, t.Header())
	}
	for i := range r.Clusters.Clusters {
		lines = append(lines, t.Row(r, &r.Clusters.Clusters[i]))
	}
	if problems := r.Problems(); len(problems) > 0 {
		lines = append(append(lines, ""), problems...)
	}
	lines = append(append(append(lines, ""), r.Notes...), r.Membership()...)
	lines = append(lines, r.Replicas()...)
	return append(lines, r.Totals())
}

// Page returns the report for a screen. Texts about problems are wrapped. If not everything
// fits, problems take at most half of the lines, and clusters with problems come first.
func (r *Report) Page(wide, color bool, width, height int) []string {
	t := NewTable(r, wide)
	t.Color = color
	end := append([]string{""}, terminal.Wrap(r.Totals(), width, "")...)
	for _, line := range slices.Backward(slices.Concat(r.Membership(), r.Replicas())) {
		end = slices.Insert(end, 1, terminal.Wrap(line, width, "  ")...)
	}
	end = slices.Insert(end, 1, r.Notes...)
	rest := max(height-len(end)-1, 1) // without the header
	problems := wrapped(r.Problems(), width)
	if total := len(slices.Concat(problems...)); total > 0 && total+1+len(r.Clusters.Clusters) > rest {
		problems = firstOf(problems, max(rest/2, rest-1-len(r.Clusters.Clusters)))
	}
	below := slices.Concat(problems...)
	if len(below) > 0 {
		below = append([]string{""}, below...)
	}
	lines := append([]string{t.Header()}, r.rows(t, rest-len(below))...)
	return slices.Concat(lines, below, end)
}

// wrapped returns the lines of each problem in a number of columns.
func wrapped(lines []string, width int) (problems [][]string) {
	for i := 0; i+1 < len(lines); i += 2 {
		problems = append(problems,
			append(terminal.Wrap(lines[i], width, "  "), terminal.Wrap(lines[i+1], width, "      ")...))
	}
	return problems
}

// firstOf returns the problems that fit into a number of lines, with an empty line before
// them, and a line about the others.
func firstOf(problems [][]string, most int) [][]string {
	used := 2 // the empty line, and the one about the others
	for i, p := range problems {
		if used += len(p); used > most {
			return append(slices.Clone(problems[:i]), []string{
				fmt.Sprintf("… and %s", Counted(len(problems)-i, "more problem")),
			})
		}
	}
	return problems
}

// rows returns the lines of the clusters in at most a number of lines.
func (r *Report) rows(t *Table, most int) []string {
	all := slices.Clone(r.Clusters.Clusters)
	if len(all) > most {
		slices.SortStableFunc(all, func(a, b document.Cluster) int {
			return min(len(b.Problems), 1) - min(len(a.Problems), 1)
		})
	}
	var lines []string
	for i := range all {
		if len(all) > most && len(lines) >= most-1 {
			return append(lines, fmt.Sprintf("… and %s", Counted(len(all)-i, "more cluster")))
		}
		lines = append(lines, t.Row(r, &all[i]))
	}
	return lines
}

// Changes prints the lines of clusters that have changed since the last report.
type Changes struct {
	table *Table
	last  map[string]string
	wide  bool
}

// NewChanges returns the changes since nothing.
func NewChanges(wide bool) *Changes { return &Changes{last: map[string]string{}, wide: wide} }

// Next returns the lines of the clusters of a report that are new or have changed, and a line
// for each that has left. Numbers that change all the time are not news.
func (c *Changes) Next(r *Report) []string {
	var lines []string
	if c.table == nil {
		c.table = NewTable(r, c.wide)
		lines = append(lines, c.table.Header())
	}
	left := c.last
	c.last = map[string]string{}
	for i := range r.Clusters.Clusters {
		one := &r.Clusters.Clusters[i]
		news := c.table.news(r, one)
		if was, ok := left[one.Name]; !ok || was != news {
			lines = append(lines, c.table.Row(r, one))
		}
		c.last[one.Name] = news
		delete(left, one.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		lines = append(lines, c.table.Row(r, &document.Cluster{Name: name, State: "gone"}))
	}
	return lines
}
