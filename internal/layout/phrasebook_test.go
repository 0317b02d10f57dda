// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/layout/figures"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// ownName matches delta.New and delta.FIFO.Pop.
	ownName = regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?$`)
)

// TestPhraseBook_namesExist fails if docs/from-client-go.md, or its translation, names a
// function, type, method or field of this module that does not exist.
func TestPhraseBook_namesExist(t *testing.T) {
	declared := exportedNames(t)
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

// exportedNames returns the exported names of all packages, as package.Name for
// functions, types, variables and constants, and as package.Type.Name for methods and
// fields.
func exportedNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test() {
			addNames(names, s.file.Name.Name, s.file)
		}
	}
	return names
}

// addNames adds the names that a file declares, each after the prefix and a dot.
func addNames(names map[string]bool, prefix string, file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[prefix+"."+d.Name.Name] = true
				continue
			}
			names[prefix+"."+figures.Receiver(d)+"."+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				addSpec(names, prefix, spec)
			}
		}
	}
}

func addSpec(names map[string]bool, prefix string, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			names[prefix+"."+name.Name] = true
		}
	case *ast.TypeSpec:
		names[prefix+"."+spec.Name.Name] = true
		var members *ast.FieldList
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			members = typ.Fields
		case *ast.InterfaceType:
			members = typ.Methods
		default:
			return
		}
		for _, member := range members.List {
			for _, name := range member.Names {
				names[prefix+"."+spec.Name.Name+"."+name.Name] = true
			}
		}
	}
}
