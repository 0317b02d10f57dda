// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/layout/pages"
)

// translated is how the name of a Chinese page ends. Its source has the same name with
// .md instead.
const translated = ".zh-CN.md"

var (
	// recordedHash matches the last line of a translation.
	recordedHash = regexp.MustCompile(`(?:\A|\n)<!-- source sha256: ([0-9a-f]*) -->\n\z`)
	heading      = regexp.MustCompile(`^(#{1,6}) `)
)

// translation is a page in Chinese, with slash-separated paths from the root.
type translation struct {
	path, text         string
	source, sourceText string
}

// TestTranslations_followTheirSource fails when the English source of a Chinese page has
// changed since the page was reviewed, and when the two pages differ in their headings,
// table rows or code blocks.
func TestTranslations_followTheirSource(t *testing.T) {
	for _, page := range paths(t, translated) {
		t.Run(page, func(t *testing.T) {
			tr := readTranslation(t, page)
			if *update {
				tr.text = tr.recorded()
				if err := os.WriteFile(filepath.Join(root, tr.path), []byte(tr.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, problem := range tr.problems() {
				t.Error(problem)
			}
		})
	}
}

// readTranslation reads a Chinese page and its source.
func readTranslation(t *testing.T, page string) translation {
	t.Helper()
	tr := translation{path: page, source: strings.TrimSuffix(page, translated) + ".md"}
	text, err := os.ReadFile(filepath.Join(root, tr.path))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, tr.source))
	if err != nil {
		t.Fatalf("%s translates a page that cannot be read: %v", tr.path, err)
	}
	tr.text, tr.sourceText = string(text), string(source)
	return tr
}

// sourceHash returns the hash of the source as it is now, without measured values: a translation has them from the
// same results. For a page without values, sha256sum prints the same hash.
func (tr translation) sourceHash() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(pages.WithoutValues(tr.sourceText))))
}

// recorded returns the text of the translation with the hash of its source as the last
// line.
func (tr translation) recorded() string {
	text := strings.TrimRight(recordedHash.ReplaceAllString(tr.text, "\n"), "\n")
	return fmt.Sprintf("%s\n\n<!-- source sha256: %s -->\n", text, tr.sourceHash())
}

// updateCommand returns the command that records the hash of the source.
func (tr translation) updateCommand() string {
	return fmt.Sprintf("go test ./internal/layout -run '^TestTranslations_followTheirSource$/%s' -update", tr.path)
}

// problems returns a sentence for each difference between a translation and its source.
func (tr translation) problems() []string {
	var problems []string
	switch hash := recordedHash.FindStringSubmatch(tr.text); {
	case hash == nil:
		problems = append(problems,
			fmt.Sprintf("%s does not end with the hash of %s; to record it: %s", tr.path, tr.source,
				tr.updateCommand()))
	case hash[1] != tr.sourceHash():
		problems = append(problems,
			fmt.Sprintf("%s has changed: review %s, then record the new hash: %s", tr.source, tr.path,
				tr.updateCommand()))
	}
	english, chinese := countParts(tr.sourceText), countParts(tr.text)
	for part := range chinese {
		english[part] += 0
	}
	for _, part := range slices.Sorted(maps.Keys(english)) {
		if chinese[part] != english[part] {
			problems = append(problems,
				fmt.Sprintf("%s has %d %s and %s has %d: review %s", tr.source, english[part], part, tr.path,
					chinese[part], tr.path))
		}
	}
	problems = append(problems, missingLink(tr.path, tr.text, "English", tr.source)...)
	return append(problems, missingLink(tr.source, tr.sourceText, "中文", tr.path)...)
}

// missingLink returns a sentence if a page does not have a line that links the same page
// in the other language.
func missingLink(page, text, language, other string) []string {
	link := fmt.Sprintf("[%s](%s)", language, path.Base(other))
	if strings.Contains(text, "\n"+link+"\n") {
		return nil
	}
	return []string{fmt.Sprintf("%s does not have the line %s below its title", page, link)}
}

// countParts returns how many headings of each level, table rows, code blocks and measured values a page
// has. Lines inside code blocks are neither headings nor rows.
func countParts(text string) map[string]int {
	counts := map[string]int{"measured values": len(pages.Markers(text))}
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inside = !inside
			if inside {
				counts["code blocks"]++
			}
		case inside:
		case strings.HasPrefix(line, "|"):
			counts["table rows"]++
		default:
			if mark := heading.FindStringSubmatch(line); mark != nil {
				counts[mark[1]+" headings"]++
			}
		}
	}
	return counts
}

func TestTranslations_comparisonNamesEachDifference(t *testing.T) {
	same := translation{
		path: "docs/page.zh-CN.md", source: "docs/page.md",
		text:       "# 页\n\n[English](page.md)\n\n## 甲\n\n| 一 |\n|---|\n| 二 |\n\n```\n## x\n| y |\n```\n",
		sourceText: "# Page\n\n[中文](page.zh-CN.md)\n\n## A\n\n| one |\n|---|\n| two |\n\n```\n## x\n| y |\n```\n",
	}
	if got := same.problems(); len(got) != 1 ||
		!strings.HasPrefix(got[0], "docs/page.zh-CN.md does not end with the hash of docs/page.md") {
		t.Errorf("a page without a hash: %q", got)
	}
	same.text = same.recorded()
	if got := same.problems(); len(got) > 0 {
		t.Errorf("a page that was just recorded: %q", got)
	}
	if again := same.recorded(); again != same.text {
		t.Errorf("recording the same hash again changes the page: %q, was %q", again, same.text)
	}
	for _, c := range []struct{ name, old, changed, want string }{
		{"a word", "A", "B", "docs/page.md has changed: review docs/page.zh-CN.md, then record the new hash: go test "},
		{"a heading", "## A\n", "## A\n## B\n", "docs/page.md has 2 ## headings and docs/page.zh-CN.md has 1"},
		{"another level", "## A\n", "### A\n", "docs/page.md has 1 ### headings and docs/page.zh-CN.md has 0"},
		{"a level less", "## A\n", "A\n", "docs/page.md has 0 ## headings and docs/page.zh-CN.md has 1"},
		{"a row", "| two |\n", "| two |\n| three |\n", "docs/page.md has 4 table rows and docs/page.zh-CN.md has 3"},
		{
			"a value", "A\n", "A 1<!-- = heap.bytes -->\n",
			"docs/page.md has 1 measured values and docs/page.zh-CN.md has 0",
		},
		{"a block", "```\n## x", "```\n```\n```\n## x", "docs/page.md has 2 code blocks and docs/page.zh-CN.md has 1"},
		{
			"the link", "[中文](page.zh-CN.md)\n", "",
			"docs/page.md does not have the line [中文](page.zh-CN.md) below its title",
		},
	} {
		page := same
		page.sourceText = strings.Replace(page.sourceText, c.old, c.changed, 1)
		if got := page.problems(); !slices.ContainsFunc(got, func(p string) bool {
			return strings.HasPrefix(p, c.want)
		}) {
			t.Errorf("%s: got %q, want one that begins with %q", c.name, got, c.want)
		}
		page.text = page.recorded()
		if got := page.problems(); slices.ContainsFunc(got, func(p string) bool {
			return strings.Contains(p, "hash")
		}) {
			t.Errorf("%s: the hash was recorded, and still: %q", c.name, got)
		}
	}
}
