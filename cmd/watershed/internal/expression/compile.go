// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/parser"
	"k8s.io/apiserver/pkg/cel/library"
)

// Options are the options of [Compile].
type Options struct {
	// Condition requires an expression that is true or false.
	Condition bool
	// RefuseNow makes the variable now an error: the answer of a watch must change only when an
	// object does.
	RefuseNow bool
}

// Expression is a compiled expression, or a conjunct of one. It can be used by several goroutines.
type Expression struct {
	text      string
	condition bool
	checked   *ast.AST
	root      ast.Expr
	program   cel.Program
	// units is the work of the operations that are not in loops.
	units uint64
	// operations is how many operations there are, in loops too.
	operations int
	reads      reads
}

// Compile compiles an expression, which is checked as far as it can be without a schema of the object.
// An error of the expression is an [*Error]. Compilation takes about a millisecond for an ordinary
// expression and below a second for the worst.
func Compile(text string, o Options) (*Expression, error) {
	e, err := compile(text, o)
	if err != nil {
		return nil, fmt.Errorf("expression: %w", err)
	}
	return e, nil
}

func compile(text string, o Options) (*Expression, error) {
	env, err := untyped()
	if err != nil {
		return nil, err
	}
	parsed, err := parse(env, text)
	if err != nil {
		return nil, err
	}
	_, issues := env.Check(parsed)
	// Only the variable cluster has a type here.
	where := func(int64) (string, []string) { return clusterVariable, sorted(clusterFields) }
	if errs := errorsOf(issues, where); len(errs) > 0 {
		return nil, errs[0]
	}
	env, err = language()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Check(parsed)
	if errs := errorsOf(issues, nil); len(errs) > 0 {
		return nil, errs[0]
	}
	native := checked.NativeRep()
	e := &Expression{text: text, condition: o.Condition, checked: native, root: native.Expr()}
	if t := checked.OutputType(); o.Condition && t.Kind() != types.BoolKind && t.Kind() != types.DynKind {
		return nil, &Error{Message: notBoolean(t)}
	}
	e.reads = readsOf(e.root)
	if o.RefuseNow && e.reads.now {
		return nil, e.position(e.findNow(),
			"now cannot be used here: the answer would change without a change of an object")
	}
	estimate, err := env.EstimateCost(checked, &library.CostEstimator{SizeEstimator: assumed{}})
	if err != nil {
		return nil, err
	}
	if estimate.Min > MaxCost || estimate.Max > maxEstimate {
		return nil, &Error{Message: "the expression would take too much work, for example with its loops in loops"}
	}
	if err := e.plan(); err != nil {
		return nil, err
	}
	return e, nil
}

// plan makes the program.
func (e *Expression) plan() error {
	env, err := language()
	if err != nil {
		return err
	}
	options, units, operations, err := programOptions(e.root)
	if err != nil {
		return err
	}
	e.units, e.operations = units, operations
	e.program, err = env.PlanProgram(e.checked, options...)
	if err != nil {
		// A constant part was evaluated, such as int("x").
		return &Error{Message: plain(err.Error())}
	}
	return nil
}

// parse parses an expression and checks its limits.
func parse(env *cel.Env, text string) (*cel.Ast, error) {
	switch {
	case len(text) > MaxLength:
		return nil, &Error{Message: fmt.Sprintf("it has %d bytes, the limit is %d", len(text), MaxLength)}
	case !utf8.ValidString(text):
		return nil, &Error{Message: "it is not valid UTF-8"}
	case strings.TrimSpace(text) == "":
		return nil, &Error{Message: "it is empty"}
	case strings.Count(text, "optMap")+strings.Count(text, "optFlatMap") > maxOptMaps:
		// Each call doubles what it is called on, and that already while it is parsed.
		return nil, &Error{Message: fmt.Sprintf("it has more than %d optMap or optFlatMap", maxOptMaps)}
	}
	parsed, issues := env.Parse(text)
	if errs := errorsOf(issues, nil); len(errs) > 0 {
		return nil, errs[0]
	}
	l := limiter{source: parsed.NativeRep().SourceInfo()}
	l.walk(parsed.NativeRep().Expr(), 1)
	if l.err != nil {
		return nil, l.err
	}
	return parsed, nil
}

// limiter checks the limits of a parsed expression.
type limiter struct {
	source            *ast.SourceInfo
	loops, operations int
	err               *Error
}

func (l *limiter) fail(e ast.Expr, format string, args ...any) {
	if l.err == nil {
		l.err = at(l.source, e.ID(), fmt.Sprintf(format, args...))
	}
}

func (l *limiter) walk(e ast.Expr, depth int) {
	if depth > maxDepth {
		l.fail(e, "the expression is nested too deep")
	}
	if l.operations++; l.operations > maxOperations {
		l.fail(e, "the expression has more than %d operations", maxOperations)
	}
	if l.err != nil {
		return
	}
	l.check(e)
	for _, part := range parts(e) {
		l.walk(part, depth+1)
	}
}

func (l *limiter) check(e ast.Expr) {
	switch e.Kind() {
	case ast.LiteralKind:
		if n := text(e.AsLiteral()); n > maxLiteral {
			l.fail(e, "the literal has %d bytes, the limit is %d", n, maxLiteral)
		}
	case ast.ListKind:
		if n := e.AsList().Size(); n > maxElements {
			l.fail(e, "the list has %d elements, the limit is %d", n, maxElements)
		}
	case ast.MapKind:
		if n := e.AsMap().Size(); n > maxElements {
			l.fail(e, "the map has %d entries, the limit is %d", n, maxElements)
		}
	case ast.StructKind:
		l.fail(e, "there are no types to construct objects of")
	case ast.ComprehensionKind:
		if l.loops++; l.loops > maxLoops {
			l.fail(e, "the expression has more than %d loops", maxLoops)
		}
	case ast.CallKind:
		call := e.AsCall()
		if !isSearch(call.FunctionName()) || len(parts(e)) < 2 {
			return
		}
		pattern := parts(e)[1]
		if text, ok := pattern.AsLiteral().(types.String); ok {
			if _, err := newPattern(string(text)); err != nil {
				l.fail(pattern, "%v", err)
			}
		}
	}
}

// parts returns what an expression consists of. For a loop, this is the range, the first value of the
// accumulator, the condition and the step of each iteration, and the result.
func parts(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		if call := e.AsCall(); call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return e.AsCall().Args()
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var all []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return all
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	}
	return nil
}

func isCall(e ast.Expr, name string) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == name
}

// at returns an error with the position of a part of the expression.
func at(source *ast.SourceInfo, id int64, message string) *Error {
	e := &Error{Message: message}
	if where := source.GetStartLocation(id); where != nil && where.Line() > 0 {
		e.Line, e.Column = where.Line(), where.Column()+1
	}
	return e
}

func (e *Expression) position(part ast.Expr, message string) *Error {
	if part == nil {
		return &Error{Message: message}
	}
	return at(e.checked.SourceInfo(), part.ID(), message)
}

// findNow returns the first use of the variable now.
func (e *Expression) findNow() (found ast.Expr) {
	ast.PreOrderVisit(e.root, ast.NewExprVisitor(func(part ast.Expr) {
		if found == nil && part.Kind() == ast.IdentKind && part.AsIdent() == nowVariable {
			found = part
		}
	}))
	return found
}

// assumed is the size of what the object has, for the estimate of the work.
type assumed struct{}

// EstimateSize implements checker.CostEstimator.
func (assumed) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	if l := n.Expr(); l != nil && l.Kind() == ast.LiteralKind {
		if sized, ok := l.AsLiteral().(traits.Sizer); ok {
			size := uint64(sized.Size().(types.Int))
			return &checker.SizeEstimate{Min: size, Max: size}
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: assumedSize}
}

// EstimateCallCost implements checker.CostEstimator.
func (assumed) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// String returns the text of the expression.
func (e *Expression) String() string { return e.text }

// Paths returns what the expression reads of the object, in order. None of the paths contains another.
// The caller must not modify them. An expression that reads the whole object has one empty path.
func (e *Expression) Paths() []Path { return e.reads.paths }

// ReadsCluster reports whether the expression uses the variable cluster.
func (e *Expression) ReadsCluster() bool { return e.reads.cluster }

// ReadsNow reports whether the expression uses the variable now.
func (e *Expression) ReadsNow() bool { return e.reads.now }

// Conjuncts splits a condition at its top-level operators &&. The condition is true if all conjuncts are
// true, see [And] for the rest. A condition without such an operator has one conjunct, itself.
func (e *Expression) Conjuncts() ([]*Expression, error) {
	var parts []ast.Expr
	var split func(ast.Expr)
	split = func(part ast.Expr) {
		if !isCall(part, operators.LogicalAnd) {
			parts = append(parts, part)
			return
		}
		for _, arg := range part.AsCall().Args() {
			split(arg)
		}
	}
	split(e.root)
	if !e.condition || len(parts) == 1 {
		return []*Expression{e}, nil
	}
	conjuncts := make([]*Expression, len(parts))
	for i, part := range parts {
		text, err := parser.Unparse(part, e.checked.SourceInfo())
		if err != nil {
			return nil, fmt.Errorf("conjunct of %q: %w", shorten(e.text), err)
		}
		c := &Expression{text: text, condition: true, root: part, reads: readsOf(part)}
		c.checked = ast.NewCheckedAST(ast.NewAST(part, e.checked.SourceInfo()),
			e.checked.TypeMap(), e.checked.ReferenceMap())
		if err := c.plan(); err != nil {
			return nil, fmt.Errorf("conjunct %q: %w", shorten(text), err)
		}
		conjuncts[i] = c
	}
	return conjuncts, nil
}

// Checked is the result of checking an expression against several schemas.
type Checked struct {
	// Errors has an element for each schema: nil if the objects of this schema can have all fields that
	// the expression reads, in the types that it needs.
	Errors []*Error
}

// Lacking returns the number of schemas that have an error.
func (c Checked) Lacking() int {
	n := 0
	for _, err := range c.Errors {
		if err != nil {
			n++
		}
	}
	return n
}

// Check checks the expression against the schemas of a kind in different clusters. A field that at
// least one of them has is not an error: it may be in newer versions only. The schemas without it are
// counted in the result. A nil schema, of a cluster whose schema is not known, has no errors. The
// caller passes the schema of each distinct document once.
func (e *Expression) Check(schemas []*Schema) (Checked, error) {
	result := Checked{Errors: make([]*Error, len(schemas))}
	// everywhere has the errors that all schemas so far have, by position.
	var everywhere map[[2]int]*Error
	for i, s := range schemas {
		errs, err := e.checkOne(s)
		if err != nil {
			return Checked{}, err
		}
		found := make(map[[2]int]*Error, len(errs))
		for _, err := range errs {
			where := [2]int{err.Line, err.Column}
			if _, ok := everywhere[where]; ok || i == 0 {
				found[where] = err
			}
		}
		everywhere = found
		if len(errs) > 0 {
			result.Errors[i] = errs[0]
		}
	}
	var first *Error
	for _, err := range everywhere {
		if first == nil || err.Line < first.Line || err.Line == first.Line && err.Column < first.Column {
			first = err
		}
	}
	if first != nil {
		return result, fmt.Errorf("expression: %w", first)
	}
	return result, nil
}

// checkOne returns the errors of an expression for the objects of one schema.
func (e *Expression) checkOne(s *Schema) ([]*Error, error) {
	if s == nil {
		return nil, nil
	}
	env, err := s.environment()
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", s.name, err)
	}
	// Checking modifies what was parsed.
	parsed, err := parse(env, e.text)
	if err != nil {
		return nil, err
	}
	checked, issues := env.Check(parsed)
	if errs := errorsOf(issues, func(id int64) (string, []string) {
		path, ok := operandOf(parsed.NativeRep().Expr(), id)
		if !ok {
			return "the value", nil
		}
		return Path(append([]string{objectVariable}, path...)).String(), s.names(path)
	}); len(errs) > 0 {
		return errs, nil
	}
	if t := checked.OutputType(); e.condition && t.Kind() != types.BoolKind && t.Kind() != types.DynKind {
		return []*Error{{Line: 1, Column: 1, Message: notBoolean(t)}}, nil
	}
	return nil, nil
}

// notBoolean returns the message for a condition of another type.
func notBoolean(t *cel.Type) string {
	return shorten(fmt.Sprintf("a condition must be true or false, and this is of type %s", t))
}
