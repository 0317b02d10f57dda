// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fewerLines are the pages that may have several sentences on a line. Tests write them.
var fewerLines = map[string]string{"docs/compat.md": "TestFidelity writes it"}

var (
	// leadIn matches the beginning of a paragraph that may share its line with a sentence.
	leadIn = regexp.MustCompile(`^\s*(?:(?:[-*]|[0-9]+\.)\s+)?(?:\*\*[^*]*\*\*\s|\*[^*]*\*\s|(?:No|Yes)\.\s)?`)
	// secondSentence matches the end of a sentence and the beginning of another one.
	secondSentence = regexp.MustCompile("[a-z0-9)`\"”*\\]][.!?][\"”)*]*\\s+[A-Z`\\[*]")
)

// TestPages_haveOneSentencePerLine fails if a line of a page has more than one sentence, so that a changed sentence is
// one changed line. Chinese pages are left out: a line break between two of their characters is shown as a space.
func TestPages_haveOneSentencePerLine(t *testing.T) {
	for _, path := range paths(t, ".md") {
		if fewerLines[path] != "" || strings.HasSuffix(path, translated) {
			continue
		}
		for _, line := range longLines(readPage(t, path)) {
			t.Errorf("page %s, line %d: begin a line for each sentence", path, line)
		}
	}
}

// longLines returns the numbers of the lines that have more than one sentence. It does not look at code, tables,
// headings and what is inserted from results.
func longLines(text string) (numbers []int) {
	text = generated.ReplaceAllStringFunc(text, func(s string) string {
		if breaks := strings.Count(s, "\n"); breaks > 0 {
			return strings.Repeat("\n", breaks)
		}
		return "`x`" // code in a sentence, or the target of a link
	})
	code := false
	for i, line := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			code = !code
		case code, strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "<!--"):
		case secondSentence.MatchString(line[len(leadIn.FindString(line)):]):
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

func TestLongLines_findsTwoSentences(t *testing.T) {
	page := "# A. B\n\nOne sentence. Another one.\nOne, `One. Two`, of v1.2 and 3 GB.\n" +
		"- *Lead in.* A sentence. A second.\n- **Lead in.** A sentence.\n| A cell. Another. |\n" +
		"```\nSome code. More.\n```\nNo. It has one.\n" +
		"<!-- heap:begin -->\nA. Caption. Here.\n<!-- heap:end -->\nCode is `code`. `More` follows.\n"
	if got, want := longLines(page), []int{3, 5, 15}; !slices.Equal(got, want) {
		t.Errorf("lines %v, want %v", got, want)
	}
}
