// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/layout/pages"
)

// constantsFile lists the numbers with a unit that no benchmark measures: a line has the page, a phrase of the page,
// and what fixes the number, with tabs between them.
const constantsFile = "testdata/constants.txt"

// measuredPages are the pages whose numbers with a unit must come from a result file or be in constantsFile. The value
// is true for a page that does not follow the rule yet.
var measuredPages = map[string]bool{
	"README.md":                        false,
	"README.zh-CN.md":                  false,
	"docs/scale.md":                    false,
	"docs/operations/install.md":       false,
	"docs/operations/install.zh-CN.md": false,
	"docs/operations/sizing.md":        false,
	"docs/operations/storage.md":       false,
	"docs/operations/upgrade.md":       false,
	"docs/performance/README.md":       false,
}

// TestValues_areInserted fails if a page differs from what make pages writes. The marks of changed code are as make
// pages left them, so that a change of a package does not fail the test.
func TestValues_areInserted(t *testing.T) {
	results, err := pages.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths(t, ".md") {
		text := readPage(t, path)
		marks := pages.Marked(path, text)
		inserted, err := results.Insert(path, text, func(name string) bool { return marks[name] })
		if err == nil {
			inserted, err = pages.InsertFacts(root, path, inserted)
		}
		if err != nil {
			t.Error(err)
		} else if inserted != text {
			t.Errorf("page %s: its values are not those of %s, or its versions and counts not those of the checkout; "+
				"to insert them: make pages", path, pages.Folder)
		}
	}
}

// TestValues_areMeasured fails if a page has a number with a unit that is neither inserted nor listed as a constant,
// and if the list has a phrase that no page has.
func TestValues_areMeasured(t *testing.T) {
	constants := readConstants(t)
	for _, path := range slices.Sorted(maps.Keys(measuredPages)) {
		left, unused := loose(readPage(t, path), constants[path])
		for _, phrase := range unused {
			t.Errorf("%s: page %s does not have %q, or not outside of what is inserted: delete the line",
				constantsFile, path, phrase)
		}
		switch notYet := measuredPages[path]; {
		case notYet && len(left) == 0:
			t.Errorf("page %s follows the rule: set its value in measuredPages to false", path)
		case !notYet:
			for _, number := range left {
				t.Errorf("page %s, line %d: %q is not inserted from a result file (CONTRIBUTING.md, Measured values) "+
					"and not in %s", path, number.line, number.text, constantsFile)
			}
		}
	}
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readConstants returns the phrases of constantsFile by page.
func readConstants(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(constantsFile)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if line == "\n" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(fields) != 3 || fields[2] == "" {
			t.Errorf("%s: %q is not a page, a phrase and what fixes the number, with tabs between them",
				constantsFile, line)
			continue
		}
		if _, found := measuredPages[fields[0]]; !found {
			t.Errorf("%s: the rule does not concern page %s", constantsFile, fields[0])
		}
		constants[fields[0]] = append(constants[fields[0]], fields[1])
	}
	return constants
}

// looseNumber is a number with a unit that nothing explains.
type looseNumber struct {
	line int
	text string
}

var (
	numberWithUnit = regexp.MustCompile(`[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?: ?(?:ns|us|µs|ms|s|KB|MB|GB|KiB|MiB|GiB|x|times)\b` +
		`| ?(?:%|微秒|毫秒|秒|倍)| bytes\b)`)
	// generated matches what a page has from a benchmark, and what is not prose.
	generated = regexp.MustCompile("(?s)<!-- [a-z]+:begin -->.*?<!-- [a-z]+:end -->" +
		"|```.*?\n```|`[^`\n]+`|\\]\\([^)]*\\)")
	// inserted matches a value and its marker. Its first group is the unit.
	inserted = regexp.MustCompile(`[-+]?[0-9][0-9,]*(?:\.[0-9]+)?( ?[^0-9\s<|]+)?<!-- = [^>]*? -->`)
	lines    = regexp.MustCompile(`[^\n]+`)
)

// loose returns the numbers with a unit that are not inserted and not in one of the phrases, and the phrases that
// the page does not have. A value that is inserted without a unit counts if a unit follows it: the unit must be
// inserted with it.
func loose(text string, phrases []string) (numbers []looseNumber, unused []string) {
	blank := func(s string) string { return lines.ReplaceAllString(s, "") }
	text = generated.ReplaceAllStringFunc(text, blank)
	text = inserted.ReplaceAllStringFunc(text, func(s string) string {
		if inserted.FindStringSubmatch(s)[1] != "" {
			return ""
		}
		return "0"
	})
	for _, phrase := range phrases {
		if !strings.Contains(text, phrase) {
			unused = append(unused, phrase)
		}
	}
	slices.SortFunc(phrases, func(a, b string) int { return len(b) - len(a) })
	for _, phrase := range phrases {
		text = strings.ReplaceAll(text, phrase, "")
	}
	line := 0
	for l := range strings.Lines(text) {
		line++
		for _, number := range numberWithUnit.FindAllString(l, -1) {
			numbers = append(numbers, looseNumber{line, number})
		}
	}
	return numbers, unused
}

func TestLoose_findsNumbersWithUnits(t *testing.T) {
	page := "A list takes 0.39 s<!-- = list.json s --> instead of 2.5 s, and 580<!-- = heap.bytes --> bytes.\n" +
		"| 390<!-- = list.json --> | 30,000 pods | 6.5x |\n" +
		"```\n4 GB\n```\n" +
		"`--limit=10ms`, [4 KB](a.md#4-kb), 20 %, 1.08 倍, a window of 64 MiB, a second window of 64 MiB, 3 times, " +
		"4 sets, p50, us.\n" +
		"<!-- list:begin -->\n5 ms\n<!-- list:end -->\n7 us\n"
	numbers, unused := loose(page, []string{"a window of 64 MiB", "64 KiB"})
	var got []string
	for _, n := range numbers {
		got = append(got, fmt.Sprint(n.line, " ", n.text))
	}
	want := []string{
		"1 2.5 s", "1 0 bytes", "2 6.5x", "6 4 KB", "6 20 %", "6 1.08 倍", "6 64 MiB", "6 3 times", "10 7 us",
	}
	if !slices.Equal(got, want) || !slices.Equal(unused, []string{"64 KiB"}) {
		t.Errorf("got %q, want %q; unused %q", got, want, unused)
	}
}
