// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

const cachePackage = "k8s.io/client-go/tools/cache"

// replaced maps names of client-go to those of the shim. Private functions of the tests
// that read private fields are left out: the shim has them under the same names.
var replaced = map[string]string{
	"NewSharedInformer":       "newSharedInformer",
	"NewInformer":             "newPlainInformer",
	"NewTransformingInformer": "newTransformingInformer",
}

var shimmed = []string{"eventHandlerCount", "isStarted", "isRegistered"}

// port turns tests of client-go's package cache into tests of a package beside it.
type port struct {
	t *testing.T
	// omit are the functions to leave out, and omitted those that were left out.
	omit    map[string]bool
	omitted map[string]bool
}

func newPort(t *testing.T, unported map[string]string) *port {
	p := &port{t: t, omit: map[string]bool{}, omitted: map[string]bool{}}
	for name := range unported {
		p.omit[name] = true
	}
	for _, name := range shimmed {
		p.omit[name] = true
	}
	return p
}

// file returns a ported file. If it uses public names of its original package, it imports
// that package.
func (p *port) file(name string, public bool) string {
	p.t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		p.t.Fatal(err)
	}
	file.Name.Name = "upstream"
	var comments []*ast.CommentGroup
	file.Decls = slices.DeleteFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !p.omit[f.Name.Name] {
			return false
		}
		p.omitted[f.Name.Name] = true
		comments = slices.Concat(comments, inside(file.Comments, f))
		return true
	})
	file.Comments = slices.DeleteFunc(file.Comments, func(c *ast.CommentGroup) bool {
		return slices.Contains(comments, c)
	})
	rename(file)
	imports(file, public)
	var out bytes.Buffer
	if err := format.Node(&out, set, file); err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	return out.String()
}

// inside returns the comments of a function.
func inside(all []*ast.CommentGroup, f *ast.FuncDecl) []*ast.CommentGroup {
	var out []*ast.CommentGroup
	for _, c := range all {
		if c == f.Doc || c.Pos() >= f.Pos() && c.End() <= f.End() {
			out = append(out, c)
		}
	}
	return out
}

// rename replaces the names of constructors.
func rename(file *ast.File) {
	selected := map[*ast.Ident]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			selected[n.Sel] = true
		case *ast.Ident:
			if now, ok := replaced[n.Name]; ok && !selected[n] {
				n.Name = now
			}
		}
		return true
	})
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// imports drops unused imports, and adds the original package of the file.
func imports(file *ast.File, public bool) {
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.IMPORT {
			continue
		}
		g.Specs = slices.DeleteFunc(g.Specs, func(s ast.Spec) bool { return !used[nameOf(s.(*ast.ImportSpec))] })
		if public {
			g.Specs = append(g.Specs, &ast.ImportSpec{
				Name: ast.NewIdent("."),
				Path: &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(cachePackage)},
			})
			public = false
		}
	}
}

// nameOf returns the name of an import in a file.
func nameOf(s *ast.ImportSpec) string {
	if s.Name != nil {
		return s.Name.Name
	}
	p, err := strconv.Unquote(s.Path.Value)
	if err != nil {
		return ""
	}
	if majorVersion.MatchString(path.Base(p)) {
		p = path.Dir(p)
	}
	return path.Base(p)
}

// complete checks that all functions that are to be left out were found.
func (p *port) complete() {
	p.t.Helper()
	for name := range p.omit {
		if !p.omitted[name] {
			p.t.Errorf("client-go has no %s any more: take it from the list", name)
		}
	}
}
