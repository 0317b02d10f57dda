// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
)

// Missing is a value that an object does not have. It is the number of names at the beginning of the
// path that lead to something: the image of a container that has none is Missing(3) of {"spec",
// "containers", Every, "image"}, and of an object without spec, it is Missing(0). Each of these names
// leads to an object, or to a list if the next is Every. If that is not so, for example because spec is
// null, the value must not be given: the object has to be decoded.
type Missing int

// Known evaluates an expression from known values, without the object. It can be used by several
// goroutines.
type Known struct {
	expression *Expression
	paths      []Path
	// used has the paths that the expression reads something of, as indexes of paths.
	used []int
}

// From returns what evaluates the expression from the values at some paths, and false if the expression
// reads anything else of the object. A value at a path has everything that is below.
func (e *Expression) From(paths []Path) (*Known, bool) {
	k := &Known{expression: e, paths: paths}
	for _, read := range e.reads.paths {
		i := slices.IndexFunc(paths, func(p Path) bool { return p.contains(read) })
		if i < 0 {
			return nil, false
		}
		if !slices.Contains(k.used, i) {
			k.used = append(k.used, i)
		}
	}
	// A value that is a part of another one is not needed.
	all := slices.Clone(k.used)
	k.used = slices.DeleteFunc(k.used, func(i int) bool {
		return slices.ContainsFunc(all, func(j int) bool { return i != j && paths[j].contains(paths[i]) })
	})
	return k, true
}

// Uses returns the indexes of the paths whose values are needed.
func (k *Known) Uses() []int { return k.used }

// Evaluate evaluates the expression. Values has the value of each path that was given to [Expression.From]
// and that is used: nil, a bool, int64, float64, string, []any or map[string]any, as in a decoded
// object, or [Missing]. For each Every in its path a value is in a []any with an element for each
// element of the object's list, in the same order. The values are not modified. The error is the
// error of the context, or says that the values contradict each other: then the object has to be decoded.
func (k *Known) Evaluate(ctx context.Context, around *Surroundings, values []any) (Result, error) {
	var object any = map[string]any{}
	for _, i := range k.used {
		var err error
		if object, err = insert(object, k.paths[i], 0, values[i]); err != nil {
			return Result{}, fmt.Errorf("known value of %s: %w", k.paths[i], err)
		}
	}
	row := Row{around: around, decoded: types.DefaultTypeAdapter.NativeToValue(object)}
	return k.expression.evaluate(ctx, &row)
}

// insert adds a value to what is known of an object, and returns the result. Depth is how many names of
// the path lead to what is known so far, nil if that is nothing.
func insert(known any, p Path, depth int, value any) (any, error) {
	missing, isMissing := value.(Missing)
	switch {
	case isMissing && (int(missing) < depth || int(missing) >= len(p)):
		return nil, fmt.Errorf("%d of %d names cannot be what exists", missing, len(p))
	case depth == len(p):
		return value, nil
	case p[depth] == Every:
		return insertEvery(known, p, depth, value)
	}
	fields, ok := known.(map[string]any)
	if !ok {
		if known != nil {
			return nil, fmt.Errorf("%s is known to be another kind of value", p[:depth])
		}
		fields = map[string]any{}
	}
	if isMissing && int(missing) == depth {
		return fields, nil
	}
	below, err := insert(fields[p[depth]], p, depth+1, value)
	if err != nil {
		return nil, err
	}
	fields[p[depth]] = below
	return fields, nil
}

// insertEvery adds the values of the elements of a list.
func insertEvery(known any, p Path, depth int, value any) (any, error) {
	list, ok := known.([]any)
	if !ok && known != nil {
		return nil, fmt.Errorf("%s is known to be another kind of value", p[:depth])
	}
	if _, ok := value.(Missing); ok {
		return list, nil
	}
	values, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("the values of the elements are a %T, and must be a []any", value)
	}
	if list == nil {
		list = make([]any, len(values))
	}
	if len(list) != len(values) {
		return nil, fmt.Errorf("the list has %d elements here and %d elsewhere", len(values), len(list))
	}
	for i := range list {
		element, err := insert(list[i], p, depth+1, values[i])
		if err != nil {
			return nil, err
		}
		list[i] = element
	}
	return list, nil
}
