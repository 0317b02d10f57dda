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
)

var (
	namedTest       = regexp.MustCompile("`(Test[A-Za-z_]+)`")
	namedDifference = regexp.MustCompile("(?m)^\\| [DSIC][0-9]+ \\| `([A-Za-z0-9_]+)` \\|")
)

// TestSemantics_namesTestsThatExist keeps docs/semantics.md to its word: every
// test it names is there, every difference has its test, and every such test is
// a difference it lists.
func TestSemantics_namesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "semantics.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := tests(t)
	named := namedTest.FindAllStringSubmatch(string(text), -1)
	differences := namedDifference.FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 || len(differences) == 0 {
		t.Fatalf("%d tests and %d differences found: the page has another shape", len(named), len(differences))
	}
	for _, m := range named {
		if !exists[m[1]] {
			t.Errorf("docs/semantics.md names %s, which does not exist", m[1])
		}
	}
	listed := map[string]bool{}
	for _, m := range differences {
		listed["TestDifference_"+m[1]] = true
		if !exists["TestDifference_"+m[1]] {
			t.Errorf("difference %s has no test", m[1])
		}
	}
	for name := range exists {
		if strings.HasPrefix(name, "TestDifference_") && !listed[name] {
			t.Errorf("%s pins a difference that docs/semantics.md does not list", name)
		}
	}
}

// TestSecurity_namesTestsThatExist fails if SECURITY.md, or its translation, names a test that does not exist.
func TestSecurity_namesTestsThatExist(t *testing.T) {
	exists := tests(t)
	for _, page := range []string{"SECURITY.md", "SECURITY" + translated} {
		named := namedTest.FindAllStringSubmatch(readPage(t, page), -1)
		if len(named) < 10 {
			t.Fatalf("page %s: %d tests found: the page has another shape", page, len(named))
		}
		for _, m := range named {
			if !exists[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
}

// tests returns the names of all functions in tests.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	for _, s := range sources(t) {
		for _, decl := range s.Syntax.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.Test() {
				exists[f.Name.Name] = true
			}
		}
	}
	return exists
}
