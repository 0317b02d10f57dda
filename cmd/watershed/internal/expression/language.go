// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/library"
)

// The names of the variables.
const (
	objectVariable  = "object"
	clusterVariable = "cluster"
	nowVariable     = "now"
)

// clusterType is the type of the variable cluster while an expression is checked.
const clusterType = "cluster"

// libraries returns the options of package k8s.io/apiserver/pkg/cel/environment for Kubernetes 1.37,
// without the authorization libraries. That package would link 40 more packages; a test compares the
// functions of both.
func libraries() []cel.EnvOption {
	return []cel.EnvOption{
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		library.URLs(),
		library.Regex(),
		cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		library.Quantity(),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(),
			cel.ValidateHomogeneousAggregateLiterals(),
		),
		ext.Strings(ext.StringsVersion(2)),
		ext.Sets(),
		library.IP(),
		library.CIDR(),
		library.Format(),
		ext.TwoVarComprehensions(),
		library.SemverLib(library.SemverVersion(1)),
		ext.Lists(ext.ListsVersion(3)),
		library.Lists(library.ListsVersion(1)),
	}
}

// base is the environment that has the functions, and now, but not the other variables.
var base = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(append(libraries(),
		cel.ParserRecursionLimit(maxParserDepth),
		cel.ParserExpressionSizeLimit(MaxLength),
		cel.EnableMacroCallTracking(),
		cel.Variable(nowVariable, cel.TimestampType),
	)...)
})

// language is the environment that expressions are parsed and evaluated in. Object and cluster have no
// types there: their values are maps, in whichever cluster they are.
var language = sync.OnceValues(func() (*cel.Env, error) {
	e, err := base()
	if err != nil {
		return nil, err
	}
	return e.Extend(cel.Variable(objectVariable, cel.DynType), cel.Variable(clusterVariable, cel.DynType))
})

// untyped is the environment that expressions are checked in if no schema is known.
var untyped = sync.OnceValues(func() (*cel.Env, error) { return checking(cel.DynType, nil) })

// checking returns an environment in which expressions are checked and not evaluated.
func checking(object *cel.Type, schema *Schema) (*cel.Env, error) {
	e, err := base()
	if err != nil {
		return nil, err
	}
	return e.Extend(
		cel.CustomTypeProvider(&provider{Provider: e.CELTypeProvider(), schema: schema}),
		cel.Variable(objectVariable, object),
		cel.Variable(clusterVariable, cel.ObjectType(clusterType)),
	)
}

// programOptions returns the options with which an expression is evaluated, the units of its operations
// that are not in loops, and the number of all operations.
func programOptions(root ast.Expr) (o []cel.ProgramOption, units uint64, operations int, err error) {
	iterations := map[int64]uint64{}
	units = count(root, iterations)
	operations = int(units)
	for _, repeated := range iterations {
		operations += int(repeated)
	}
	decorate, err := metered(iterations)
	if err != nil {
		return nil, 0, 0, err
	}
	o = []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(decorate)}
	return o, units, operations, nil
}

// count returns the number of operations of an expression without those that loops repeat, which it adds
// to iterations by the part of the loop that is evaluated for each element.
func count(e ast.Expr, iterations map[int64]uint64) uint64 {
	n := uint64(1)
	all := parts(e)
	if e.Kind() == ast.ComprehensionKind {
		condition, step := all[2], all[3]
		all = []ast.Expr{all[0], all[1], all[4]}
		iterations[step.ID()] = count(condition, iterations) + count(step, iterations)
	}
	for _, part := range all {
		n += count(part, iterations)
	}
	return n
}
