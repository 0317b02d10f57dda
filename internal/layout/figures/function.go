// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"cmp"
	"fmt"
	"go/ast"
	"slices"
)

// longFunction is the number of lines above which a function counts as long,
// from the line with func to the line with its closing brace.
const longFunction = 60

// Function is a function or method outside tests.
type Function struct {
	Place
	// Name is qualified by the receiver's type. A function literal that is not
	// inside a function has the name func.
	Name  string
	Lines int
}

func (f Function) String() string { return fmt.Sprintf("%s %s (%d lines)", f.Place, f.Name, f.Lines) }

// LongFunctions returns the functions of more than 60 lines outside tests, the
// longest first. A function literal counts as part of the function around it.
func LongFunctions(c *Checkout) []Function {
	var long []Function
	for _, s := range c.Sources {
		if s.Test() {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			name := ""
			switch n := n.(type) {
			case *ast.FuncDecl:
				name = n.Name.Name
				if n.Recv != nil {
					name = Receiver(n) + "." + name
				}
			case *ast.FuncLit:
				name = "func"
			default:
				return true
			}
			at := c.place(s, n.Pos())
			if lines := c.place(s, n.End()).Line - at.Line + 1; lines > longFunction {
				long = append(long, Function{at, name, lines})
			}
			return false
		})
	}
	slices.SortStableFunc(long, func(a, b Function) int { return cmp.Compare(b.Lines, a.Lines) })
	return long
}
