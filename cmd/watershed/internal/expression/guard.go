// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// The cost of an evaluation is counted here and not by cel-go, whose counter takes time that is quadratic
// in the iterations of a loop, and counts a call after it. That is too late for a call that is large by
// itself: replace can make a terabyte out of two strings of a megabyte, and comparing lists that contain
// the same list several times, several levels deep, can take years.
//
// Each operation of the expression is one unit, for each iteration of the loops around it. The operations
// of a loop are counted at once, when an iteration begins. The work of a call that depends on the size of
// its arguments is added before the call.

// meter counts the units of one evaluation, and ends it when they are used up.
type meter struct {
	ctx  context.Context
	used uint64
	// checked is the number of units at which the context was checked.
	checked uint64
}

// meterVariable is the name under which an evaluation finds its meter. No variable can have it.
const meterVariable = "#meter"

// charge adds units in the evaluation that a frame belongs to. Constant parts are evaluated without one.
func charge(frame *interpreter.ExecutionFrame, units uint64) {
	if found, ok := frame.ResolveName(meterVariable); ok {
		found.(*meter).add(units)
	}
}

func (m *meter) add(units uint64) {
	if m.used += min(units, 2*MaxCost); m.used > MaxCost {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: errTooMuch.Error()})
	}
	if m.used-m.checked >= checkEvery {
		m.checked = m.used
		if m.ctx.Err() != nil {
			panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled, Message: "cancelled"})
		}
	}
}

// iteration is the part of a loop that each iteration evaluates.
type iteration struct {
	interpreter.InterpretableV2
	units uint64
}

// Exec implements interpreter.InterpretableV2.
func (i iteration) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	charge(frame, i.units)
	return i.InterpretableV2.Exec(frame)
}

// call is a call whose work is counted before it begins.
type call struct {
	interpreter.InterpretableCall
	name  string
	args  []interpreter.InterpretableV2
	apply func(args []ref.Val) ref.Val
	// units returns the work of a call. If it is nil, [work] does.
	units func(args []ref.Val) uint64
}

// Args implements interpreter.InterpretableCall.
func (c *call) Args() []interpreter.InterpretableV2 { return c.args }

// Eval implements interpreter.Interpretable.
func (c *call) Eval(variables interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(variables))
}

// Exec implements interpreter.InterpretableV2.
func (c *call) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var space [3]ref.Val
	args := space[:0]
	for _, arg := range c.args {
		value := arg.Exec(frame)
		if types.IsUnknownOrError(value) {
			return value
		}
		args = append(args, value)
	}
	var units uint64
	if c.units != nil {
		units = c.units(args)
	} else {
		units = work(c.name, args)
	}
	if units > 0 {
		charge(frame, units)
	}
	return types.LabelErrNode(c.ID(), c.apply(args))
}

// free are the functions whose work does not depend on their arguments.
var free = map[string]bool{
	operators.LogicalNot: true, operators.Negate: true, operators.Subtract: true, operators.Multiply: true,
	operators.Divide: true, operators.Modulo: true, operators.Index: true, operators.OptIndex: true,
	operators.OptSelect: true, operators.NotStrictlyFalse: true,
	operators.Conditional: true, operators.LogicalAnd: true, operators.LogicalOr: true,
	"type": true, "dyn": true, "first": true, "last": true,
}

// work returns the units of a call, without the one unit that each call has. A unit is ten bytes of text
// that is read or made, or a hundred bytes that are only compared.
func work(function string, args []ref.Val) uint64 {
	switch function {
	case operators.Equals, operators.NotEquals:
		if contains(args[0]) && contains(args[1]) {
			return min(weight(args[0]), weight(args[1]))
		}
		return min(text(args[0]), text(args[1])) / 100
	case operators.In, operators.OldIn:
		return membership(args[1], args[0])
	case "includes", "indexOf", "lastIndexOf":
		return membership(args[0], args[min(1, len(args)-1)])
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return min(text(args[0]), text(args[1])) / 100
	case "startsWith", "endsWith", "contains", "size":
		return text(args[0]) / 100
	case operators.Add:
		return text(args[0])/10 + text(args[1])/10 + listed(args[0]) + listed(args[1])
	case "sets.contains", "sets.equivalent", "sets.intersects":
		return product(weight(args[0]), weight(args[1]))
	case "distinct":
		return product(weight(args[0]), listed(args[0]))
	case "sort", "@sortByAssociatedKeys":
		return product(weight(args[0]), 4)
	case "reverse", "slice", "isSorted", "sum", "min", "max":
		return listed(args[0])
	}
	return expansion(function, args)
}

// expansion returns the work of functions whose result can be much larger than their arguments, and of all
// other functions, which read all text that they are given.
func expansion(function string, args []ref.Val) uint64 {
	var units uint64
	for _, arg := range args {
		units += text(arg) / 10
	}
	switch function {
	case "replace":
		if len(args) > 2 {
			places := strings.Count(stringOf(args[0]), stringOf(args[1]))
			units += product(uint64(places), text(args[2])) / 10
		}
	case "split":
		if len(args) > 1 {
			units += uint64(strings.Count(stringOf(args[0]), stringOf(args[1])))
		}
	case "join":
		units += weight(args[0])
		if len(args) > 1 {
			units += product(listed(args[0]), text(args[1])/10+1)
		}
	case "format", "flatten":
		for _, arg := range args {
			units += weight(arg)
		}
	case "lists.range":
		if n, ok := args[0].(types.Int); ok && n > 0 {
			units += uint64(n)
		}
	case "quantity", "isQuantity":
		if hugeQuantity(stringOf(args[0])) {
			units += 2 * MaxCost
		}
	}
	if strings.HasPrefix(function, "get") && len(args) > 1 {
		// A time zone is read from a file.
		units += zoneUnits
	}
	return units
}

// membership returns the work of looking for a value in a list or text.
func membership(in, value ref.Val) uint64 {
	switch in := in.(type) {
	case traits.Lister:
		if contains(value) {
			return weight(in) + product(length(in), weight(value))
		}
		return length(in) + text(value)/10
	case types.String:
		return product(text(in)/10+1, text(value)/10+1)
	}
	return 0
}

// hugeQuantity reports whether a text is a number whose digits would be billions: Kubernetes' quantities
// have no limit, and 1e2147483647 takes minutes.
func hugeQuantity(s string) bool {
	number := strings.TrimLeft(s, "+-.0123456789")
	if len(s)-len(number) > maxDigits {
		return true
	}
	exponent, ok := strings.CutPrefix(strings.ToLower(number), "e")
	exponent = strings.TrimLeft(exponent, "+-")
	return ok && len(exponent) > maxExponent && strings.Trim(exponent, "0123456789") == ""
}

// metered returns the decorator that counts the work of an expression. Cel-go applies it to each part of a
// program while it plans the program. Iterations has the units of the parts that are evaluated for each
// element of a loop.
func metered(iterations map[int64]uint64) (interpreter.InterpretableDecoratorV2, error) {
	implementations, err := functionsByName()
	if err != nil {
		return nil, err
	}
	return func(part interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if c, ok := part.(interpreter.InterpretableCall); ok {
			name := c.Function()
			switch implementation := implementations[name]; {
			case isSearch(name):
				search, err := search(c)
				if err != nil {
					return nil, err
				}
				part = search
			case implementation != nil && !free[name] && !simple(c):
				part = &call{InterpretableCall: c, name: name, args: c.Args(), apply: implementation}
			}
		}
		if units, ok := iterations[part.ID()]; ok {
			part = iteration{part, units}
		}
		return part, nil
	}, nil
}

// functionsByName returns the implementations of all functions.
var functionsByName = sync.OnceValues(func() (map[string]func([]ref.Val) ref.Val, error) {
	e, err := language()
	if err != nil {
		return nil, err
	}
	implementations := map[string]func([]ref.Val) ref.Val{}
	for name, declaration := range e.Functions() {
		bindings, err := declaration.Bindings()
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", name, err)
		}
		for _, binding := range bindings {
			if binding.Operator == name {
				implementations[name] = func(args []ref.Val) ref.Val { return invoke(binding, args) }
			}
		}
	}
	implementations[operators.Equals] = func(args []ref.Val) ref.Val { return types.Equal(args[0], args[1]) }
	implementations[operators.NotEquals] = func(args []ref.Val) ref.Val {
		return types.Bool(types.Equal(args[0], args[1]) != types.True)
	}
	implementations[operators.Add] = add
	return implementations, nil
})

// simple reports whether a call is a comparison with a constant number or boolean, or with a short text.
func simple(c interpreter.InterpretableCall) bool {
	switch c.Function() {
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater,
		operators.GreaterEquals:
		for _, arg := range c.Args() {
			if constant, ok := arg.(interpreter.InterpretableConst); ok && !contains(constant.Value()) {
				return text(constant.Value()) < 100
			}
		}
	}
	return false
}

// invoke calls the implementation of a function.
func invoke(o *functions.Overload, args []ref.Val) ref.Val {
	if o.OperandTrait != 0 && !args[0].Type().HasTrait(o.OperandTrait) {
		return types.NoSuchOverloadErr()
	}
	switch {
	case len(args) == 1 && o.Unary != nil:
		return o.Unary(args[0])
	case len(args) == 2 && o.Binary != nil:
		return o.Binary(args[0], args[1])
	case o.Function != nil:
		return o.Function(args...)
	}
	return types.NoSuchOverloadErr()
}

// add is the operator +. cel-go represents the sum of two lists by the two lists. Such a sum is slow to
// read if it is the sum of sums, so here it is a new list.
func add(args []ref.Val) ref.Val {
	left, ok := args[0].(traits.Adder)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	a, isList := args[0].(traits.Lister)
	b, both := args[1].(traits.Lister)
	if _, mutable := args[0].(traits.MutableLister); mutable || !isList || !both {
		return left.Add(args[1])
	}
	sum := make([]ref.Val, 0, length(a)+length(b))
	for _, list := range []traits.Lister{a, b} {
		for it := list.Iterator(); it.HasNext() == types.True; {
			sum = append(sum, it.Next())
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, sum)
}

// isSearch reports whether a function has a regular expression as its second argument.
func isSearch(function string) bool {
	return function == "matches" || function == "find" || function == "findAll"
}

// hidden is an argument that cel-go does not recognize as a constant, so that it does not replace the
// call by one without a guard.
type hidden struct{ interpreter.InterpretableV2 }

// search returns the call of a function with a regular expression. A constant expression is compiled
// here, any other when it is used.
func search(c interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	args := slices.Clone(c.Args())
	if len(args) < 2 || len(args) > 3 {
		return c, nil
	}
	var constant *pattern
	if literal, ok := args[1].(interpreter.InterpretableConst); ok {
		if text, ok := literal.Value().(types.String); ok {
			var err error
			if constant, err = newPattern(string(text)); err != nil {
				return nil, err
			}
			args[1] = hidden{args[1]}
		}
	}
	name := c.Function()
	units := func(args []ref.Val) uint64 {
		var found uint64
		if name == "findAll" {
			// There can be a result for each byte.
			found = text(args[0]) / 2
		}
		if constant != nil {
			return found + constant.units(text(args[0]))
		}
		return found + product(text(args[0])+1, maxInstructions)/instructionsPerUnit/10
	}
	apply := func(args []ref.Val) ref.Val {
		in, ok := args[0].(types.String)
		expr, ok2 := args[1].(types.String)
		if !ok || !ok2 {
			return types.NoSuchOverloadErr()
		}
		p := constant
		if p == nil {
			var err error
			if p, err = newPattern(string(expr)); err != nil {
				return types.NewErr("%v", err)
			}
		}
		return p.apply(name, string(in), args[2:])
	}
	return &call{InterpretableCall: c, name: name, args: args, apply: apply, units: units}, nil
}

// pattern is a compiled regular expression.
type pattern struct {
	compiled     *regexp.Regexp
	instructions int
}

// newPattern compiles a regular expression. Its size is checked first: (a{100}){10} takes eleven
// characters and a thousand instructions.
func newPattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("the regular expression has %d characters, the limit is %d", len(text), maxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("the regular expression is not valid: %w", err)
	}
	n := instructions(parsed)
	if n > maxInstructions {
		return nil, fmt.Errorf("the regular expression is too large: it has %d instructions, the limit is %d",
			n, maxInstructions)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the regular expression is not valid: %w", err)
	}
	return &pattern{compiled, n}, nil
}

// instructions returns about how many instructions a regular expression has.
func instructions(r *syntax.Regexp) int {
	n := 1 + len(r.Rune)/2
	for _, sub := range r.Sub {
		n += instructions(sub)
	}
	if r.Op == syntax.OpRepeat {
		n *= max(1, r.Min, r.Max)
	}
	return min(n, math.MaxInt32)
}

// units returns the work of a search in a text: at worst each instruction looks at each byte.
func (p *pattern) units(bytes uint64) uint64 {
	return product(bytes+1, uint64(p.instructions)) / instructionsPerUnit
}

func (p *pattern) apply(name, in string, rest []ref.Val) ref.Val {
	switch name {
	case "matches":
		return types.Bool(p.compiled.MatchString(in))
	case "find":
		return types.String(p.compiled.FindString(in))
	}
	n := -1
	if len(rest) > 0 {
		limit, ok := rest[0].(types.Int)
		if !ok {
			return types.NoSuchOverloadErr()
		}
		n = int(limit)
	}
	return types.NewStringList(types.DefaultTypeAdapter, p.compiled.FindAllString(in, n))
}

// contains reports whether a value is a list or a map.
func contains(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}

// text returns the bytes of a string, 0 for other values.
func text(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	}
	return 0
}

// stringOf returns a string, empty for other values.
func stringOf(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}

// length returns the elements of a list.
func length(l traits.Lister) uint64 {
	n, _ := l.Size().(types.Int)
	return uint64(max(n, 0))
}

// listed returns the elements of a value that is a list, 0 for other values.
func listed(v ref.Val) uint64 {
	if l, ok := v.(traits.Lister); ok {
		return length(l)
	}
	return 0
}

// product returns a*b, and a number above MaxCost if that is too large to be computed.
func product(a, b uint64) uint64 {
	if a > 10*MaxCost || b > 10*MaxCost {
		return 10 * MaxCost
	}
	return a * b
}

// weight returns the work of reading a value to its end: one for each value in it, and one for each ten
// bytes of text. It stops counting above MaxCost, so it takes no more than the work that is allowed.
func weight(v ref.Val) uint64 {
	left := int64(MaxCost) + 1
	weigh(v, &left)
	return uint64(int64(MaxCost) + 1 - left)
}

func weigh(v ref.Val, left *int64) {
	*left -= 1 + int64(text(v)/10)
	switch v := v.(type) {
	case traits.Lister:
		for it := v.Iterator(); *left > 0 && it.HasNext() == types.True; {
			weigh(it.Next(), left)
		}
	case traits.Mapper:
		for it := v.Iterator(); *left > 0 && it.HasNext() == types.True; {
			key := it.Next()
			weigh(key, left)
			weigh(v.Get(key), left)
		}
	case *types.Optional:
		if v.HasValue() {
			weigh(v.GetValue(), left)
		}
	}
	*left = max(*left, 0)
}
