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

// linkedFile matches a link of the tour to a source file, and captures its path from the
// root.
var linkedFile = regexp.MustCompile(`\]\(\.\./([^)]+\.go)\)`)

// TestTour_namesExistInTheirFiles fails if a row of the tour, or of its translation, names a
// function, type, method or field that none of the row's files declares. Such a row has
// four cells: the step, the names, their files, and client-go's names.
func TestTour_namesExistInTheirFiles(t *testing.T) {
	declared := map[string]bool{} // as store/store.go.Store.Apply
	for _, s := range sources(t) {
		for _, name := range s.Names() {
			declared[s.Path+"."+name.String()] = true
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "examples", "README*.md"))
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
			if len(cells) != 6 {
				continue
			}
			files := linkedFile.FindAllStringSubmatch(cells[3], -1)
			for _, span := range codeSpan.FindAllStringSubmatch(cells[2], -1) {
				names++
				found := false
				for _, file := range files {
					found = found || declared[file[1]+"."+span[1]]
				}
				if !found {
					t.Errorf("%s: %s is not declared in %s", filepath.Base(page), span[1], strings.TrimSpace(cells[3]))
				}
			}
		}
		if names < 40 {
			t.Errorf("%s: only %d names were found: the test reads the wrong rows", filepath.Base(page), names)
		}
	}
}
