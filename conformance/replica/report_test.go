// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// reportVariable is the folder that the page is written to. Without it no page is
// written.
const reportVariable = "WATERSHED_REPORT"

const reportPage = "compat.md"

// writeReport writes the page, if it is requested.
func writeReport(w *world, results []result) error {
	folder := os.Getenv(reportVariable)
	if folder == "" {
		return nil
	}
	version, err := w.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	page := report(results, version.GitVersion, time.Now())
	return os.WriteFile(filepath.Join(folder, reportPage), []byte(page), 0o644)
}

// report returns the page.
func report(results []result, server string, now time.Time) string {
	type count struct{ all, equal int }
	total := count{}
	byCategory := map[string]*count{}
	byDifference := map[string][]result{}
	var categories []string
	for _, r := range results {
		c := byCategory[r.request.Category]
		if c == nil {
			c = &count{}
			byCategory[r.request.Category] = c
			categories = append(categories, r.request.Category)
		}
		c.all++
		total.all++
		switch {
		case len(r.found) == 0:
			c.equal++
			total.equal++
		case r.intended != nil:
			byDifference[r.intended.name] = append(byDifference[r.intended.name], r)
		default:
			byDifference[""] = append(byDifference[""], r)
		}
	}
	slices.Sort(categories)
	var b strings.Builder
	fmt.Fprintf(&b, "# What the replica answers, and what kube-apiserver does\n\n%d of %d requests equal\n\n", total.equal, total.all)
	b.WriteString(preface(server, now))
	b.WriteString("\n| requests | equal | sent |\n| --- | ---: | ---: |\n")
	for _, name := range categories {
		c := byCategory[name]
		fmt.Fprintf(&b, "| %s | %d | %d |\n", name, c.equal, c.all)
	}
	b.WriteString("\n## Differences\n\nEvery request that is not answered as kube-apiserver answers it, by reason.\n")
	for _, d := range differences {
		section(&b, d.name, d.reason, byDifference[d.name])
	}
	if rest := byDifference[""]; len(rest) > 0 {
		section(&b, "Not intended", "These are errors.", rest)
	}
	return b.String()
}

// preface returns the text about the method, and about what counts as equal.
func preface(server string, now time.Time) string {
	return fmt.Sprintf(`The same requests are sent to kube-apiserver %s and to a replica of it (`+"`watershed serve`"+`), and the answers compared: status, the headers
%s
and whether there is an ETag, and bodies by their content, whether they are JSON, YAML, protobuf or tables. Watches are compared event by
event. A part of the requests was recorded from kubectl 1.31, 1.33 and 1.37, client-go and controller-runtime, the rest is written by hand, for the
edges. The page is written by `+"`TestFidelity`"+` in conformance/replica, %s.

These differences do not count:

- the version of a list: the replica's is the last version that its watch of the resource has received, which is not newer than the server's and not
  older than that of any item
- continue tokens, which are compared by following them to the last page; the content of an ETag; bookmarks, which a server sends at times of its own
- columns in the events of a watch of tables, after the first; kube-apiserver sends them again at random
- ages in tables, by the time between two requests
- discovery: the server's documents are first reduced to what the replica promises, which is resources that can be listed and watched, in the one
  version that is mirrored, with the verbs get, list and watch, with the subresources that can be read and are made from the object, without
  storageVersionHash
- the address in the list of versions at /api, of which each server has its own
- the current version that an error message quotes
`, server, "`"+strings.Join(comparedHeaders, "`, `")+"`", now.UTC().Format(time.DateOnly))
}

// section lists the requests of one difference.
func section(b *strings.Builder, name, reason string, results []result) {
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n", name, reason)
	slices.SortFunc(results, func(x, y result) int { return cmp.Compare(x.request.String(), y.request.String()) })
	for _, r := range results {
		f := r.found[0]
		fmt.Fprintf(b, "- `%s`: %s: `%s`, replica `%s`\n", r.request, f.where, cell(f.server), cell(f.copy))
	}
}

// port matches the port of an address, which varies.
var port = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+):\d+`)

func cell(s string) string {
	s = port.ReplaceAllString(s, "$1:PORT")
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "`", "'")
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
