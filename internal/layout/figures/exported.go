// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"go/ast"
	"go/token"
)

// Exported returns the number of exported identifiers that each package declares
// outside tests: constants, variables, functions and types, and the methods and
// named fields of exported types. Packages without any are left out.
func Exported(c *Checkout) map[string]int {
	counts := map[string]int{}
	for _, s := range c.Sources {
		if s.Test() {
			continue
		}
		n := 0
		for _, decl := range s.File.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() && (decl.Recv == nil || ast.IsExported(Receiver(decl))) {
					n++
				}
			case *ast.GenDecl:
				n += exportedSpecs(decl)
			}
		}
		if n > 0 {
			counts[s.Package()] += n
		}
	}
	return counts
}

func exportedSpecs(decl *ast.GenDecl) int {
	if decl.Tok == token.IMPORT {
		return 0
	}
	n := 0
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			n += exportedNames(spec.Names)
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				n += 1 + members(spec.Type)
			}
		}
	}
	return n
}

// members returns the number of exported fields of a struct or methods of an
// interface. Embedded fields are not counted: they declare no name of their own.
func members(t ast.Expr) int {
	var fields *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return 0
	}
	n := 0
	for _, field := range fields.List {
		n += exportedNames(field.Names)
	}
	return n
}

func exportedNames(names []*ast.Ident) int {
	n := 0
	for _, name := range names {
		if name.IsExported() {
			n++
		}
	}
	return n
}

// Receiver returns the name of the type that a method belongs to.
func Receiver(decl *ast.FuncDecl) string {
	t := decl.Recv.List[0].Type
	for {
		switch inner := t.(type) {
		case *ast.StarExpr:
			t = inner.X
		case *ast.ParenExpr:
			t = inner.X
		case *ast.IndexExpr:
			t = inner.X
		case *ast.IndexListExpr:
			t = inner.X
		case *ast.Ident:
			return inner.Name
		default:
			return ""
		}
	}
}
