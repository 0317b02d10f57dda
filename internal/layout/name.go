// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout

import "go/ast"

// Name is a name that a file declares. Kind is type, func, method, field, const or var. Owner is the type of
// a method or field.
type Name struct{ Kind, Owner, Name string }

// Exported reports whether other packages can use the name. The methods and fields of a type that is not
// exported do not count.
func (n Name) Exported() bool {
	return ast.IsExported(n.Name) && (n.Owner == "" || ast.IsExported(n.Owner))
}

func (n Name) String() string {
	if n.Owner == "" {
		return n.Name
	}
	return n.Owner + "." + n.Name
}

// Names returns the names that a file declares. An embedded field declares none. The methods of an
// interface are methods.
func (f File) Names() []Name {
	var names []Name
	add := func(kind, owner string, idents ...*ast.Ident) {
		for _, ident := range idents {
			names = append(names, Name{kind, owner, ident.Name})
		}
	}
	for _, decl := range f.Syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				add("func", "", decl.Name)
			} else {
				add("method", receiver(decl.Recv.List[0].Type), decl.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					add(decl.Tok.String(), "", spec.Names...)
				case *ast.TypeSpec:
					add("type", "", spec.Name)
					kind, members := membersOf(spec.Type)
					for _, member := range members {
						add(kind, spec.Name.Name, member.Names...)
					}
				}
			}
		}
	}
	return names
}

// membersOf returns the fields of a struct or the methods of an interface.
func membersOf(typ ast.Expr) (kind string, members []*ast.Field) {
	switch typ := typ.(type) {
	case *ast.StructType:
		return "field", typ.Fields.List
	case *ast.InterfaceType:
		return "method", typ.Methods.List
	}
	return "", nil
}

// receiver returns the name of the type that a method belongs to.
func receiver(typ ast.Expr) string {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return receiver(typ.X)
	case *ast.IndexExpr:
		return receiver(typ.X)
	case *ast.IndexListExpr:
		return receiver(typ.X)
	case *ast.Ident:
		return typ.Name
	}
	return ""
}
