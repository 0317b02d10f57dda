// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/watershed-project/watershed/internal/layout"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inlineCode   = regexp.MustCompile("`[^`]*`")
)

// TestLinks_lead fails if a page links to a file or a heading of the checkout that does not exist.
func TestLinks_lead(t *testing.T) {
	checkout := os.DirFS(root)
	links := 0
	for _, page := range paths(t, ".md") {
		text, err := fs.ReadFile(checkout, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range linksOf(string(text)) {
			links++
			if problem := deadLink(checkout, page, link); problem != "" {
				t.Errorf("%s: %s", page, problem)
			}
		}
	}
	if links < 100 {
		t.Fatalf("%d links: the test looks in the wrong place", links)
	}
}

// paths returns the paths of the files of the checkout whose names end with a suffix, from the root.
func paths(t *testing.T, suffix string) []string {
	t.Helper()
	all, err := layout.Paths(root, suffix)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// prose returns the lines of a page that are not in code blocks.
func prose(text string) []string {
	var lines []string
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inside = !inside
		case !inside:
			lines = append(lines, line)
		}
	}
	return lines
}

// linksOf returns the targets of the links of a page, without those in code.
func linksOf(text string) []string {
	var links []string
	for _, line := range prose(text) {
		for _, m := range markdownLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, "code"), -1) {
			links = append(links, m[1])
		}
	}
	return links
}

// deadLink says what is wrong with a link of a page, or is empty. Links to other sites are not
// followed.
func deadLink(checkout fs.FS, page, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return ""
	}
	target, anchor, _ := strings.Cut(link, "#")
	file := page
	if target != "" {
		file = path.Join(path.Dir(page), target)
	}
	info, err := fs.Stat(checkout, file)
	if err != nil {
		return fmt.Sprintf("the link %s leads nowhere", link)
	}
	if anchor == "" || info.IsDir() || path.Ext(file) != ".md" {
		return ""
	}
	text, err := fs.ReadFile(checkout, file)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), anchor) {
		return fmt.Sprintf("the link %s: %s has no such heading", link, file)
	}
	return ""
}

// anchors returns the names by which the headings of a page can be linked on GitHub.
func anchors(text string) []string {
	var all []string
	seen := map[string]int{}
	for _, line := range prose(text) {
		mark := heading.FindString(line)
		if mark == "" {
			continue
		}
		name := anchor(strings.TrimSpace(strings.TrimPrefix(line, mark)))
		if n := seen[name]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", name, n))
		} else {
			all = append(all, name)
		}
		seen[name]++
	}
	return all
}

// anchor returns the text of a heading in lower case, with hyphens for spaces and without
// punctuation.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestLinks_anchors(t *testing.T) {
	page := "# A page\n## The replica: lists\n## `serve`, and more_of it\n## 数据 目录\n```\n# not one\n```\n## A page\n"
	want := []string{"a-page", "the-replica-lists", "serve-and-more_of-it", "数据-目录", "a-page-1"}
	if got := anchors(page); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := linksOf("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n![g](h.svg)\n"); !slices.Equal(got,
		[]string{"b.md", "h.svg"}) {
		t.Errorf("links %q", got)
	}
}
