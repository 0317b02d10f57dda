// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// The table is between these lines of the page.
const (
	begin = "<!-- support table: written by make servers -->"
	end   = "<!-- end of the support table -->"
)

const heading = "| Kubernetes | builds | requests answered alike | of the others, unexplained | kubectl commands " +
	"alike | chaos | tested |\n" +
	"|---|---|---|---|---|---|---|\n"

// update writes a row into the page's table, and replaces the row of the same minor
// version.
func update(page string, r row, now time.Time) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	next, err := insert(string(text), r, now)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(next), 0o644)
}

func insert(text string, r row, now time.Time) (string, error) {
	before, rest, ok := strings.Cut(text, begin+"\n")
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("no table between %q and %q", begin, end)
	}
	rows := []string{fmt.Sprintf("%s %s |", r, now.UTC().Format(time.DateOnly))}
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if v := versionOf(line); semver.IsValid(v) && semver.MajorMinor(v) != semver.MajorMinor(r.version) {
			rows = append(rows, line)
		}
	}
	slices.SortFunc(rows, func(a, b string) int { return semver.Compare(versionOf(b), versionOf(a)) })
	return before + begin + "\n" + heading + strings.Join(rows, "\n") + "\n" + end + after, nil
}

// versionOf returns the first cell of a row.
func versionOf(line string) string {
	cells := strings.Split(line, "|")
	if len(cells) < 2 {
		return ""
	}
	return strings.TrimSpace(cells[1])
}
