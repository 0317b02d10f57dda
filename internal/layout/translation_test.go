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
	// chineseComment matches the Chinese part of a line of code: a comment, or the labels of a drawing.
	chineseComment = regexp.MustCompile(`(?:(?:#|//) .*)?\p{Han}.*`)
)

// translation is a page in Chinese, with slash-separated paths from the root.
type translation struct {
	path, text         string
	source, sourceText string
}

// TestTranslations_followTheirSource fails when the English source of a Chinese page has
// changed since the page was reviewed, when the two pages differ in their headings, table
// rows, code or names in code, and when the page links to an English page that has a
// Chinese version.
func TestTranslations_followTheirSource(t *testing.T) {
	chinese := paths(t, translated)
	for _, page := range chinese {
		t.Run(page, func(t *testing.T) {
			tr := readTranslation(t, page)
			if *update {
				tr.text = tr.recorded()
				if err := os.WriteFile(filepath.Join(root, tr.path), []byte(tr.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, problem := range append(tr.problems(), tr.englishLinks(chinese)...) {
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
	problems = append(problems, tr.otherCode()...)
	problems = append(problems, missingLink(tr.path, tr.text, "English", tr.source)...)
	return append(problems, missingLink(tr.source, tr.sourceText, "中文", tr.path)...)
}

// otherCode returns a sentence for the first line of code that is not the line of the source, apart from what
// chineseComment matches, and one for each name in code that only one of the two pages has.
func (tr translation) otherCode() []string {
	var problems []string
	english, chinese := code(tr.sourceText), code(tr.text)
	for i, line := range chinese {
		if i == len(english) {
			break // A page with more or fewer blocks is a problem of countParts.
		}
		same := line == english[i]
		if at := chineseComment.FindStringIndex(line); !same && at != nil {
			same = strings.HasPrefix(english[i], line[:at[0]])
		}
		if !same {
			problems = append(problems,
				fmt.Sprintf("%s has the line of code %q and %s has %q", tr.source, english[i], tr.path, line))
			break
		}
	}
	inSource, inPage := namesInCode(tr.sourceText), namesInCode(tr.text)
	for _, name := range slices.Sorted(maps.Keys(inSource)) {
		if !inPage[name] {
			problems = append(problems, fmt.Sprintf("%s has %s and %s does not", tr.source, name, tr.path))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(inPage)) {
		if !inSource[name] {
			problems = append(problems, fmt.Sprintf("%s has %s and %s does not", tr.path, name, tr.source))
		}
	}
	return problems
}

// code returns the lines of a page that are in code blocks, with the lines that begin and end the blocks.
func code(text string) []string {
	var lines []string
	inside := false
	for line := range strings.Lines(text) {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if inside || fence {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		inside = inside != fence
	}
	return lines
}

// namesInCode returns what a page has between backquotes, outside of code blocks.
func namesInCode(text string) map[string]bool {
	names := map[string]bool{}
	for _, line := range prose(text) {
		for _, name := range inlineCode.FindAllString(line, -1) {
			names[name] = true
		}
	}
	return names
}

// englishLinks returns a sentence for each link to an English page whose translation is one of the Chinese pages,
// apart from the link to the source of the page.
func (tr translation) englishLinks(chinese []string) []string {
	var problems []string
	for _, link := range linksOf(tr.text) {
		target, _, _ := strings.Cut(link, "#")
		target = path.Join(path.Dir(tr.path), target)
		page, found := strings.CutSuffix(target, ".md")
		if found && target != tr.source && slices.Contains(chinese, page+translated) {
			problems = append(problems, fmt.Sprintf("%s links to %s, which has a Chinese version", tr.path, link))
		}
	}
	return problems
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
		text: "# 页\n\n[English](page.md)\n\n## 甲\n\n| 一 |\n|---|\n| 二 |\n\n```\n## x\n| y |\n$ a  # 运行\n```\n",
		sourceText: "# Page\n\n[中文](page.zh-CN.md)\n\n## A\n\n| one |\n|---|\n| two |\n\n" +
			"```\n## x\n| y |\n$ a  # run\n```\n",
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
			"a line of code", "| y |", "| z |",
			`docs/page.md has the line of code "| z |" and docs/page.zh-CN.md has "| y |"`,
		},
		{"a command", "$ a  # run", "$ b  # run", `docs/page.md has the line of code "$ b  # run" and docs/page.zh-CN.md`},
		{"a name", "two", "two `--flag`", "docs/page.md has `--flag` and docs/page.zh-CN.md does not"},
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

func TestTranslations_linkToChinesePages(t *testing.T) {
	page := translation{
		path: "docs/page.zh-CN.md", source: "docs/page.md",
		text: "[English](page.md) [a](../README.md#a) [b](../README.zh-CN.md) [c](c.md) `[d](../README.md)`\n",
	}
	want := []string{"docs/page.zh-CN.md links to ../README.md#a, which has a Chinese version"}
	if got := page.englishLinks([]string{"README.zh-CN.md", "docs/page.zh-CN.md"}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
