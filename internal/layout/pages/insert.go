// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/watershed-project/watershed/internal/layout"
)

const (
	markerBegin   = "<!-- = "
	measuredBegin = "<!-- measured:begin -->\n"
	measuredEnd   = "<!-- measured:end -->"
	// chinese is how the name of a Chinese page ends.
	chinese = ".zh-CN.md"
)

var (
	number = `[-+]?[0-9][0-9,]*(?:\.[0-9]+)?`
	// marked matches a value and the marker behind it.
	marked = regexp.MustCompile(`(?:\?|` + number + `(?: ?(?:` + unitWords() + `))?)<!-- = ([^>]*?) -->`)
	// named matches the name of a result in a measured block.
	named = regexp.MustCompile("`([^`]+)`")
)

// wording has the texts of a measured block in one language.
type wording struct{ begin, comma, from, at, changed, semicolon, end string }

var (
	english = wording{"Measured values: ", ", ", " of ", " at ", " (the code has changed since)", "; ", "."}
	chinaZh = wording{"测量值：", "、", "，", "，提交 ", "（此后代码有改动）", "；", "。"}
)

func wordingOf(path string) wording {
	if strings.HasSuffix(path, chinese) {
		return chinaZh
	}
	return english
}

// Insert returns the text of a page with all values as they are in the results. changed says of the name of a
// result whether its packages have changed since.
func (rs Results) Insert(path, text string, changed func(name string) bool) (string, error) {
	var problem error
	used := map[string]bool{}
	found := 0
	inserted := marked.ReplaceAllStringFunc(text, func(match string) string {
		found++
		expression := marked.FindStringSubmatch(match)[1]
		value, files, err := rs.eval(expression)
		if err != nil {
			problem = fmt.Errorf("page %s: %w", path, err)
			return match
		}
		for _, file := range files {
			used[file] = true
		}
		return value + markerBegin + expression + " -->"
	})
	if problem != nil {
		return "", problem
	}
	if n := strings.Count(text, markerBegin); n != found {
		return "", fmt.Errorf("page %s: %d of %d markers have no number and no question mark directly before them",
			path, n-found, n)
	}
	before, rest, hasBlock := strings.Cut(inserted, measuredBegin)
	_, after, closed := strings.Cut(rest, measuredEnd)
	switch {
	case !hasBlock && found == 0:
		return inserted, nil
	case !hasBlock || !closed:
		return "", fmt.Errorf("page %s: has values and needs the lines %s and %s", path,
			strings.TrimSpace(measuredBegin), measuredEnd)
	}
	return before + measuredBegin + rs.measured(wordingOf(path), used, changed) + measuredEnd + after, nil
}

// measured returns the text of a measured block: the results by commit.
func (rs Results) measured(w wording, used map[string]bool, changed func(string) bool) string {
	groups := map[string][]string{}
	for name := range used {
		r := rs[name]
		when := w.from + r.Date + w.at + shortCommit(r.Commit)
		if changed(name) {
			when += w.changed
		}
		groups[when] = append(groups[when], "`"+name+"`")
	}
	var parts []string
	for when, names := range groups {
		slices.Sort(names)
		parts = append(parts, strings.Join(names, w.comma)+when)
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return w.begin + strings.Join(parts, w.semicolon) + w.end + "\n"
}

// shortCommit returns the first seven digits of a commit, and whether files differed from it.
func shortCommit(commit string) string {
	hash, dirty, _ := strings.Cut(commit, "-")
	hash = hash[:min(7, len(hash))]
	if dirty != "" {
		hash += "-" + dirty
	}
	return hash
}

// Marked returns the names of the results that a page says have changed. With it, [Results.Insert] leaves the marks
// of a page as they are.
func Marked(path, text string) map[string]bool {
	_, rest, _ := strings.Cut(text, measuredBegin)
	block, _, _ := strings.Cut(rest, measuredEnd)
	w := wordingOf(path)
	names := map[string]bool{}
	for part := range strings.SplitSeq(block, w.semicolon) {
		if strings.Contains(part, w.changed) {
			for _, match := range named.FindAllStringSubmatch(part, -1) {
				names[match[1]] = true
			}
		}
	}
	return names
}

// WithoutValues returns a page without its values, its facts and its measured block, so that two versions of it are
// equal if they differ only in these.
func WithoutValues(text string) string {
	text = marked.ReplaceAllString(text, markerBegin+"$1 -->")
	text = stated.ReplaceAllString(text, factBegin+"$1 -->")
	before, rest, hasBlock := strings.Cut(text, measuredBegin)
	_, after, closed := strings.Cut(rest, measuredEnd)
	if !hasBlock || !closed {
		return text
	}
	return before + measuredBegin + measuredEnd + after
}

// Markers returns the expressions of a page's markers.
func Markers(text string) []string {
	var expressions []string
	for _, match := range marked.FindAllStringSubmatch(text, -1) {
		expressions = append(expressions, match[1])
	}
	return expressions
}

// Update inserts the values and the facts into all pages of a checkout, and returns the paths of those that it changed.
func Update(checkout string) ([]string, error) {
	results, err := Read(checkout)
	if err != nil {
		return nil, err
	}
	changed, err := results.Changed(checkout)
	if err != nil {
		return nil, err
	}
	paths, err := layout.Paths(checkout, ".md")
	if err != nil {
		return nil, err
	}
	var written []string
	for _, path := range paths {
		file := filepath.Join(checkout, filepath.FromSlash(path))
		text, err := os.ReadFile(file)
		if err != nil {
			return written, err
		}
		inserted, err := results.Insert(path, string(text), func(name string) bool { return changed[name] })
		if err == nil {
			inserted, err = InsertFacts(checkout, path, inserted)
		}
		if err != nil {
			return written, err
		}
		if inserted == string(text) {
			continue
		}
		if err := os.WriteFile(file, []byte(inserted), 0o644); err != nil {
			return written, err
		}
		written = append(written, path)
	}
	return written, nil
}
