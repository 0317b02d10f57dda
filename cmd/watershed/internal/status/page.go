// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package status

import (
	"fmt"
	"slices"

	"github.com/watershed-project/watershed/replica"
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
	lines = append(append(lines, ""), r.Notes...)
	return append(lines, r.Totals())
}

// Page returns the report in a limited number of lines. Problems take at most half of them.
// If not all clusters fit, those with problems come first.
func (r *Report) Page(wide, color bool, rows int) []string {
	whole := r.Lines(wide, color)
	if len(whole) <= rows {
		return whole
	}
	t := NewTable(r, wide)
	t.Color = color
	end := append([]string{""}, append(slices.Clone(r.Notes), r.Totals())...)
	rest := max(rows-len(end)-1, 1) // without the header
	problems := r.Problems()
	if most := rest / 2; len(problems)+1 > most {
		shown := max(0, most-2) / 2 * 2
		hidden := (len(problems) - shown) / 2
		problems = append(problems[:shown], fmt.Sprintf("… and %s", counted(hidden, "more problem")))
	}
	if len(problems) > 0 {
		problems = append([]string{""}, problems...)
	}
	lines := append([]string{t.Header()}, r.rows(t, rest-len(problems))...)
	return slices.Concat(lines, problems, end)
}

// rows returns the lines of the clusters in at most a number of lines.
func (r *Report) rows(t *Table, most int) []string {
	all := slices.Clone(r.Clusters.Clusters)
	if len(all) > most {
		slices.SortStableFunc(all, func(a, b replica.ClusterState) int { return min(len(b.Problems), 1) - min(len(a.Problems), 1) })
	}
	var lines []string
	for i := range all {
		if len(all) > most && len(lines) >= most-1 {
			return append(lines, fmt.Sprintf("… and %s", counted(len(all)-i, "more cluster")))
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
	for _, name := range sorted(left) {
		lines = append(lines, c.table.Row(r, &replica.ClusterState{Name: name, State: "gone"}))
	}
	return lines
}

// sorted returns the keys of a map in order.
func sorted(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
