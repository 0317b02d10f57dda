// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const factBegin = "<!-- @ "

// fact is a version or a count that a file of the checkout fixes.
type fact struct {
	file string
	// pattern matches the file. Its first group is the version, or the text whose lines are counted.
	pattern *regexp.Regexp
	lines   bool
}

// facts are the versions and counts that a page can name.
var facts = map[string]fact{
	"go":                 {"go.mod", regexp.MustCompile(`(?m)^go (\d+\.\d+)`), false},
	"client-go":          {"go.mod", regexp.MustCompile(`\sk8s\.io/client-go v(\S+)`), false},
	"controller-runtime": {"examples/operator/go.mod", regexp.MustCompile(`/controller-runtime v(\S+)`), false},
	"kubernetes.pinned": {"internal/kubetest/binaries/kubernetes/go.mod",
		regexp.MustCompile(`\sk8s\.io/kubernetes v(\S+)`), false},
	// The oldest version that the chart accepts, and the first and the last row of the table of tested versions.
	"kubernetes.chart": {"deploy/helm/watershed/Chart.yaml", regexp.MustCompile(`(?m)^kubeVersion: ">=(\d+\.\d+)`), false},
	"kubernetes.tested-newest": {"docs/servers.md",
		regexp.MustCompile(`(?s)<!-- support table.*?\n\| v(\S+) \|.*<!-- end of the support table`), false},
	"kubernetes.tested-oldest": {"docs/servers.md",
		regexp.MustCompile(`(?s)<!-- support table.*\n\| v(\S+) \|.*<!-- end of the support table`), false},
	"compat.sent":  {"docs/compat.md", regexp.MustCompile(`(?m)^\d+ of (\d+) requests equal$`), false},
	"compat.equal": {"docs/compat.md", regexp.MustCompile(`(?m)^(\d+) of \d+ requests equal$`), false},
	"compat.pass-through": {"docs/compat.md",
		regexp.MustCompile("(?m)^(\\d+) of \\d+ requests equal with `--pass"), false},
	"chart.resources": {"deploy/helm/watershed/values.yaml",
		regexp.MustCompile(`\n    resources:\n((?:      - .*\n)+)`), true},
	"disk.format": {"internal/storage/format/file.go", regexp.MustCompile(`(?m)^const Version = (\d+)$`), false},
}

// stated matches a version or a count and the marker behind it.
var stated = regexp.MustCompile(`(?:\?|[0-9][0-9.,]*)<!-- @ ([a-z0-9.-]+) -->`)

// InsertFacts returns the text of a page with all versions and counts as the files of the checkout have them.
func InsertFacts(checkout, path, text string) (string, error) {
	var problem error
	found := 0
	inserted := stated.ReplaceAllStringFunc(text, func(match string) string {
		found++
		name := stated.FindStringSubmatch(match)[1]
		value, err := readFact(checkout, name)
		if err != nil {
			problem = fmt.Errorf("page %s: fact %s: %w", path, name, err)
		}
		return value + factBegin + name + " -->"
	})
	if n := strings.Count(text, factBegin); problem == nil && n != found {
		problem = fmt.Errorf("page %s: %d of %d facts have no number and no question mark directly before their marker",
			path, n-found, n)
	}
	return inserted, problem
}

// readFact returns a fact as text: a count with commas.
func readFact(checkout, name string) (string, error) {
	f, known := facts[name]
	if !known {
		return "", fmt.Errorf("facts.go does not have it")
	}
	text, err := os.ReadFile(filepath.Join(checkout, filepath.FromSlash(f.file)))
	if err != nil {
		return "", err
	}
	match := f.pattern.FindStringSubmatch(string(text))
	if match == nil {
		return "", fmt.Errorf("%s does not have it", f.file)
	}
	value := match[1]
	if f.lines {
		value = strconv.Itoa(strings.Count(value, "\n"))
	}
	if n, err := strconv.Atoi(value); err == nil {
		value = format(float64(n), 0)
	}
	return value, nil
}
