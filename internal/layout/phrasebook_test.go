// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// ownName matches delta.New and delta.FIFO.Pop.
	ownName = regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?$`)
)

// TestPhraseBook_namesExist fails if docs/from-client-go.md, or its translation, names a
// function, type, method or field of this module that does not exist.
func TestPhraseBook_namesExist(t *testing.T) {
	declared := declaredNames(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "from-client-go*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no page: %v", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		names := 0
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(line, "|")
			if len(cells) != 5 {
				continue
			}
			for _, span := range codeSpan.FindAllStringSubmatch(cells[2], -1) {
				name := ownName.FindStringSubmatch(span[1])
				if name == nil || name[1] == "metav1" || name[1] == "unstructured" || name[1] == "dynamic" {
					continue
				}
				names++
				if !declared[span[1]] {
					t.Errorf("%s: %s does not exist", filepath.Base(page), span[1])
				}
			}
		}
		if names < 60 {
			t.Errorf("%s: only %d names were found: the test reads the wrong column", filepath.Base(page), names)
		}
	}
}

// declaredNames returns the names that all packages declare outside tests, as package.Name,
// and as package.Type.Name for methods and fields.
func declaredNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, s := range sources(t) {
		if s.Test() {
			continue
		}
		for _, name := range s.Names() {
			names[s.Syntax.Name.Name+"."+name.String()] = true
		}
	}
	return names
}
