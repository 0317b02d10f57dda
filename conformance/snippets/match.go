// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets

import (
	"regexp"
	"strings"
)

// anything stands for any text, or for any lines if it is a line of its own.
const anything = "…"

// volatile are the parts of an output that differ from run to run, and their names.
var volatile = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "<time>"},
	{regexp.MustCompile(`\bv\d+\.\d+\.\d+(-[0-9a-z.-]+)?\b`), "<version>"},
	{regexp.MustCompile(`\b(localhost|127\.0\.0\.1):\d+\b`), "<address>"},
	{regexp.MustCompile(`-[0-9a-f]{8,10}-[0-9a-z]{5}\b`), "-<pod>"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ns|µs|us|ms|s|m|h|d))+\b`), "<duration>"},
	{regexp.MustCompile(`\b\d+(\.\d+)?([KMG]i?B?| [KMG]B)\b`), "<size>"},
	// How many objects a cluster has depends on the cluster.
	{regexp.MustCompile(`\b\d{2,}\b`), "<number>"},
}

// shape returns a line without what may differ.
func shape(line string) string {
	for _, v := range volatile {
		line = v.pattern.ReplaceAllString(line, v.name)
	}
	return strings.Join(strings.Fields(line), " ")
}

// Match reports whether the lines that were printed are those that a page shows.
func Match(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == anything {
		for skip := range len(got) + 1 {
			if Match(want[1:], got[skip:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && matchLine(want[0], got[0]) && Match(want[1:], got[1:])
}

// matchLine compares a line of a page, in which anything may stand, with one that was printed.
func matchLine(want, got string) bool {
	parts := strings.Split(shape(want), anything)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	matched, err := regexp.MatchString("^"+strings.Join(parts, ".*")+"$", shape(got))
	return err == nil && matched
}
