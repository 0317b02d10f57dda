// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Path is a part of the object: the names that lead to it. Every is the name of every element of a list.
// The path of the image of each container is {"spec", "containers", Every, "image"}.
type Path []string

// Every is the name of every element of a list in a [Path]. No field of an object has this name.
const Every = "\x00"

// String returns the path as it is written in an expression, with [*] for every element.
func (p Path) String() string {
	var b strings.Builder
	for i, name := range p {
		switch {
		case name == Every:
			b.WriteString("[*]")
		case identifier(name):
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(name)
		default:
			b.WriteString("[" + strconv.Quote(name) + "]")
		}
	}
	return b.String()
}

// identifier reports whether a name can follow a dot.
func identifier(name string) bool {
	for i, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// contains reports whether the value at p contains the value at q.
func (p Path) contains(q Path) bool { return len(p) <= len(q) && slices.Equal(p, q[:len(p)]) }

// reads is what an expression reads.
type reads struct {
	paths        []Path
	cluster, now bool
}

// readsOf returns what an expression reads. A path is read with everything below it, unless only fields
// or elements of its value are used.
func readsOf(e ast.Expr) reads {
	r := &reader{}
	r.walk(e, nil)
	slices.SortFunc(r.paths, func(a, b Path) int { return slices.Compare(a, b) })
	// In this order, a path comes before the paths that it contains.
	var kept []Path
	for _, p := range r.paths {
		if len(kept) == 0 || !kept[len(kept)-1].contains(p) {
			kept = append(kept, p)
		}
	}
	r.paths = kept
	return r.reads
}

type reader struct {
	reads
	// operands has, if it is not nil, the path of what a field is selected from, by the selection.
	operands map[int64]Path
}

// operandOf returns the path of what a field is selected from, and false if it is not a part of the
// object.
func operandOf(root ast.Expr, selection int64) (Path, bool) {
	r := &reader{operands: map[int64]Path{}}
	r.walk(root, nil)
	path, ok := r.operands[selection]
	return path, ok
}

// note adds the operands of the selections in a chain of them.
func (r *reader) note(e ast.Expr, s *scope) {
	for r.operands != nil {
		var operand ast.Expr
		switch {
		case e.Kind() == ast.SelectKind:
			operand = e.AsSelect().Operand()
		case e.Kind() == ast.CallKind && len(e.AsCall().Args()) > 0:
			operand = e.AsCall().Args()[0]
		default:
			return
		}
		if path, ok := resolve(operand, s); ok {
			r.operands[e.ID()] = path
		}
		e = operand
	}
}

// scope has the variables of the loops around an expression. A variable has the path of what it stands
// for, or none if it stands for a value that was computed.
type scope struct {
	parent *scope
	name   string
	path   Path
	known  bool
}

func (s *scope) find(name string) (path Path, known, found bool) {
	for ; s != nil; s = s.parent {
		if s.name == name {
			return s.path, s.known, true
		}
	}
	return nil, false, false
}

// resolve returns the path that an expression stands for, and false if it is computed in another way.
func resolve(e ast.Expr, s *scope) (Path, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		name, global := strings.CutPrefix(e.AsIdent(), ".")
		if path, known, found := s.find(name); found && !global {
			return path, known
		}
		return nil, name == objectVariable
	case ast.SelectKind:
		sel := e.AsSelect()
		path, ok := resolve(sel.Operand(), s)
		return extend(path, sel.FieldName()), ok
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			if args[1].Kind() != ast.LiteralKind {
				return nil, false
			}
			path, ok := resolve(args[0], s)
			switch key := args[1].AsLiteral().(type) {
			case types.String:
				return extend(path, string(key)), ok && key != Every
			case types.Int, types.Uint, types.Double:
				return extend(path, Every), ok
			}
		case "dyn":
			if len(args) == 1 {
				return resolve(args[0], s)
			}
		}
	}
	return nil, false
}

func extend(p Path, name string) Path { return append(slices.Clip(p), name) }

// walk notes what an expression reads.
func (r *reader) walk(e ast.Expr, s *scope) {
	if path, ok := resolve(e, s); ok {
		r.paths = append(r.paths, path)
		r.note(e, s)
		return
	}
	switch e.Kind() {
	case ast.IdentKind:
		name, global := strings.CutPrefix(e.AsIdent(), ".")
		if _, _, found := s.find(name); !found || global {
			r.cluster = r.cluster || name == clusterVariable
			r.now = r.now || name == nowVariable
		}
	case ast.ComprehensionKind:
		r.loop(e.AsComprehension(), s)
	default:
		for _, part := range parts(e) {
			r.walk(part, s)
		}
	}
}

// loop notes what a loop reads. Its variable stands for every element of the list that it runs over, so
// that only the fields that are used are read, for example images but not whole containers. Over a map,
// the variable is a key. That a value is a list is known only when the expression is evaluated: who
// knows values for a path with Every has seen a list there.
func (r *reader) loop(c ast.ComprehensionExpr, s *scope) {
	path, ok := resolve(c.IterRange(), s)
	elements := extend(path, Every)
	if ok {
		r.note(c.IterRange(), s)
	} else {
		r.walk(c.IterRange(), s)
	}
	inside := &scope{parent: s, name: c.IterVar(), path: elements, known: ok}
	if c.HasIterVar2() {
		// The first variable is the index or the key.
		inside.path, inside.known = nil, false
		inside = &scope{parent: inside, name: c.IterVar2(), path: elements, known: ok}
	}
	r.walk(c.AccuInit(), s)
	inside = &scope{parent: inside, name: c.AccuVar()}
	before := len(r.paths)
	r.walk(c.LoopCondition(), inside)
	r.walk(c.LoopStep(), inside)
	used := slices.ContainsFunc(r.paths[before:], func(p Path) bool { return elements.contains(p) })
	if ok && !used {
		// How many elements there are is read in any case.
		r.paths = append(r.paths, path)
	}
	r.walk(c.Result(), &scope{parent: s, name: c.AccuVar()})
}
