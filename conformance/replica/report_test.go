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
func writeReport(w *comparedCluster, columns []column, results [][]result) error {
	folder := os.Getenv(reportVariable)
	if folder == "" {
		return nil
	}
	version, err := w.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	page := report(columns, results, version.GitVersion, time.Now())
	return os.WriteFile(filepath.Join(folder, reportPage), []byte(page), 0o644)
}

// count counts requests.
type count struct{ all, equal int }

// total counts the requests of a category, or all if it is "".
func total(results []result, category string) count {
	var c count
	for _, r := range results {
		if category != "" && r.request.Category != category {
			continue
		}
		c.all++
		if len(r.found) == 0 {
			c.equal++
		}
	}
	return c
}

// report returns the page. All columns have the same requests.
func report(columns []column, results [][]result, server string, now time.Time) string {
	var b strings.Builder
	b.WriteString("# What the replica answers, and what kube-apiserver does\n\n")
	for i, c := range columns {
		sum := total(results[i], "")
		fmt.Fprintf(&b, "%s\n\n",
			strings.TrimSpace(fmt.Sprintf("%d of %d requests equal %s", sum.equal, sum.all, c.name)))
	}
	b.WriteString(preface(server, now))
	head, rule := "\n| requests |", "| --- |"
	for _, c := range columns {
		head += " " + strings.TrimSpace("equal "+c.name) + " |"
		rule += " ---: |"
	}
	b.WriteString(head + " sent |\n" + rule + " ---: |\n")
	var categories []string
	for _, r := range results[0] {
		categories = append(categories, r.request.Category)
	}
	slices.Sort(categories)
	for _, name := range slices.Compact(categories) {
		fmt.Fprintf(&b, "| %s |", name)
		for i := range columns {
			fmt.Fprintf(&b, " %d |", total(results[i], name).equal)
		}
		fmt.Fprintf(&b, " %d |\n", total(results[0], name).all)
	}
	for i, c := range columns {
		fmt.Fprintf(&b, "\n## %s\n\nEvery request that is not answered as kube-apiserver answers it, by reason.\n",
			strings.TrimSpace("Differences "+c.name))
		sections(&b, c.differences, results[i])
	}
	return b.String()
}

// sections lists the requests that are not answered as by the server.
func sections(b *strings.Builder, differences []difference, results []result) {
	byDifference := map[string][]result{}
	for _, r := range results {
		switch {
		case len(r.found) == 0:
		case r.intended != nil:
			byDifference[r.intended.name] = append(byDifference[r.intended.name], r)
		default:
			byDifference[""] = append(byDifference[""], r)
		}
	}
	for _, d := range differences {
		section(b, d.name, d.reason, byDifference[d.name])
	}
	if rest := byDifference[""]; len(rest) > 0 {
		section(b, "Not intended", "These are errors.", rest)
	}
}

// preface returns the text about the method, and about what counts as equal.
func preface(server string, now time.Time) string {
	return fmt.Sprintf(`The same requests are sent to kube-apiserver %s and to a replica of it (`+"`watershed serve`"+
		`), and the answers compared: status, the headers
%s
and whether there is an ETag, and bodies by their content, whether they are JSON, YAML, protobuf or tables. Watches are compared event by
event. A part of the requests was recorded from kubectl 1.31, 1.33 and 1.37, client-go and controller-runtime, the rest is written by hand, for the
edges. The page is written by `+"`TestFidelity`"+` in conformance/replica, %s.

The second column is a replica with `+"`--pass-through`"+`, and the token of a user at the cluster: it passes requests that the copy cannot answer on to
kube-apiserver. There the discovery documents are compared as a whole.

These differences do not count:

- the version of a list: the replica's is the last version that its watch of the resource has received, which is not newer than the server's and not
  older than that of any item
- continue tokens, which are compared by following them to the last page; the content of an ETag; bookmarks, which a server sends at times of its own
- columns in the events of a watch of tables, after the first; kube-apiserver sends them again at random
- ages in tables, by the time between two requests
- discovery without `+"`--pass-through`"+`: the server's documents are first reduced to what the replica promises, which is resources that can be listed and watched, in the one
  version that is mirrored, with the verbs get, list and watch, with the subresources that can be read and are made from the object, without
  storageVersionHash
- the address in the list of versions at /api without `+"`--pass-through`"+`, of which each server has its own
- the headers Audit-Id and X-Kubernetes-Pf-\*, which a response has if it comes from the server
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
