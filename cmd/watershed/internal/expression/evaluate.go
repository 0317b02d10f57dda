// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/wire"
)

// Cluster is the value of the variable cluster. Nothing may modify the labels while expressions are
// evaluated.
type Cluster struct {
	Name    string
	Labels  map[string]string
	Version string
}

// Surroundings are the values that are the same for the objects of one cluster in one request. They can
// be used by several goroutines.
type Surroundings struct {
	cluster ref.Val
	now     types.Timestamp
}

// NewSurroundings returns the values of cluster and now. A zero time is for expressions that were
// compiled with RefuseNow.
func NewSurroundings(c Cluster, now time.Time) *Surroundings {
	labels := make(map[string]any, len(c.Labels))
	for name, value := range c.Labels {
		labels[name] = value
	}
	fields := map[string]any{"name": c.Name, "labels": labels, "version": c.Version}
	return &Surroundings{types.DefaultTypeAdapter.NativeToValue(fields), types.Timestamp{Time: now.UTC()}}
}

// Row is one object that expressions are evaluated on. It decodes the object when the first expression
// reads it, and keeps it for the next expressions. A Row is not safe for concurrent use.
type Row struct {
	around  *Surroundings
	object  *wire.Object
	decoded ref.Val
	err     error
	// meter counts the work of the evaluation that runs.
	meter meter
}

// NewRow returns a row for an object.
func NewRow(object *wire.Object, around *Surroundings) *Row {
	return &Row{around: around, object: object}
}

// NewDecodedRow returns a row for an object that is decoded already. It is not modified.
func NewDecodedRow(object map[string]any, around *Surroundings) *Row {
	return &Row{around: around, decoded: types.DefaultTypeAdapter.NativeToValue(object)}
}

// ResolveName returns the value of a variable to the interpreter of cel-go.
func (r *Row) ResolveName(name string) (any, bool) {
	switch name {
	case objectVariable:
		return r.value(), true
	case clusterVariable:
		return r.around.cluster, true
	case nowVariable:
		return r.around.now, true
	case meterVariable:
		return &r.meter, true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (r *Row) Parent() interpreter.Activation { return nil }

func (r *Row) value() ref.Val {
	if r.decoded != nil {
		return r.decoded
	}
	u, err := decoded(r.object)
	if r.err = err; err != nil {
		r.decoded = types.WrapErr(err)
	} else {
		r.decoded = types.DefaultTypeAdapter.NativeToValue(u.Object)
	}
	return r.decoded
}

// decoded decodes an object, if nobody has it decoded. From protobuf, it takes less time and half the memory to
// make JSON of it first, because that needs no Go value of the object's type.
func decoded(object *wire.Object) (*unstructured.Unstructured, error) {
	if held, ok := wire.Held[*unstructured.Unstructured](object); ok {
		return held, nil
	}
	if object.Encoding() == wire.Protobuf {
		text, err := object.AppendTypedJSON(make([]byte, 0, 2*object.Length()))
		if err != nil {
			return nil, err
		}
		if object, err = wire.NewObject(text, wire.JSON, object.Kind()); err != nil {
			return nil, err
		}
	}
	return wire.DecodeFresh[*unstructured.Unstructured](object)
}

// Outcome is the result of a condition on one object.
type Outcome uint8

// The outcomes of a condition.
const (
	False Outcome = iota
	True
	// Failed means that the evaluation has ended with an error, because a field is missing or has another
	// type, or because it takes too much work. The object does not match, and is counted.
	Failed
)

// And returns the outcome of a condition from the outcomes of its conjuncts: False if one conjunct is
// false, as in CEL, otherwise Failed if one has failed. A planner can forget an object at the first
// conjunct that is not true, but whether the object counts as failed is known only after the others.
func And(outcomes ...Outcome) Outcome {
	all := True
	for _, o := range outcomes {
		switch o {
		case False:
			return False
		case Failed:
			all = Failed
		}
	}
	return all
}

// Result is the result of one evaluation.
type Result struct {
	// Value is nil, a bool, int64, uint64, float64, string, []byte, [time.Time], [time.Duration], []any
	// or map[string]any of such values. Types of Kubernetes, such as quantities, are strings. It is
	// nil if Err is not.
	Value any
	// Err is the reason why Value is nil.
	Err error
	// Cost is the work of the evaluation, in units of [MaxCost].
	Cost uint64
}

// Outcome returns the outcome of a condition that has this result.
func (r Result) Outcome() Outcome {
	switch value, ok := r.Value.(bool); {
	case r.Err != nil || !ok:
		return Failed
	case value:
		return True
	}
	return False
}

// Evaluate evaluates the expression on an object. The error is the error of the
// context, or says why the object's bytes cannot be decoded. All other errors are in the result.
func (e *Expression) Evaluate(ctx context.Context, row *Row) (Result, error) {
	result, err := e.evaluate(ctx, row)
	if err == nil && row.err != nil {
		err = row.err
	}
	return result, err
}

func (e *Expression) evaluate(ctx context.Context, row *Row) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	row.meter = meter{ctx: ctx, used: e.units}
	out, _, err := e.program.Eval(row)
	r := Result{Cost: min(row.meter.used, MaxCost)}
	if err != nil {
		var cancelled interpreter.EvalCancelledError
		if errors.As(err, &cancelled) {
			if cancelled.Cause == interpreter.ContextCancelled {
				return r, context.Cause(ctx)
			}
			err = errTooMuch
		}
		r.Err = errors.New(shorten(err.Error()))
		return r, nil
	}
	if e.condition {
		value, ok := out.(types.Bool)
		if !ok {
			r.Err = fmt.Errorf("the condition is of type %s, and must be true or false", out.Type().TypeName())
			return r, nil
		}
		r.Value = bool(value)
		return r, nil
	}
	r.Value, r.Err = native(out)
	return r, nil
}

var errTooMuch = errors.New("the expression takes too much work on this object")

// native returns a value as plain Go values.
func native(v ref.Val) (any, error) {
	c := converter{values: maxResult, bytes: maxResultBytes}
	value := c.convert(v)
	if c.values < 0 || c.bytes < 0 {
		return nil, fmt.Errorf("the result has more than %d values or %d bytes", maxResult, maxResultBytes)
	}
	return value, c.err
}

// converter converts one result, and has what is left of its limits.
type converter struct {
	values, bytes int
	err           error
}

func (c *converter) convert(v ref.Val) any {
	if c.values--; c.values < 0 || c.bytes < 0 || c.err != nil {
		return nil
	}
	switch v := v.(type) {
	case types.String:
		c.bytes -= len(v)
		return string(v)
	case types.Bytes:
		c.bytes -= len(v)
		return []byte(v)
	case types.Bool, types.Int, types.Uint, types.Double, types.Timestamp, types.Duration:
		return v.Value()
	case types.Null:
		return nil
	case *types.Optional:
		if !v.HasValue() {
			return nil
		}
		return c.convert(v.GetValue())
	}
	return c.composite(v)
}

func (c *converter) composite(v ref.Val) any {
	switch v := v.(type) {
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); c.values >= 0 && it.HasNext() == types.True; {
			list = append(list, c.convert(it.Next()))
		}
		return list
	case traits.Mapper:
		m := map[string]any{}
		for it := v.Iterator(); c.values >= 0 && it.HasNext() == types.True; {
			key := it.Next()
			name, ok := key.ConvertToType(types.StringType).(types.String)
			if !ok {
				c.err = fmt.Errorf("the result has a key of type %s", key.Type().TypeName())
				return nil
			}
			c.bytes -= len(name)
			m[string(name)] = c.convert(v.Get(key))
		}
		return m
	}
	if text, ok := v.Value().(fmt.Stringer); ok {
		s := text.String()
		c.bytes -= len(s)
		return s
	}
	if t, ok := v.(ref.Type); ok {
		return t.TypeName()
	}
	c.err = fmt.Errorf("the result is of type %s, which has no text", v.Type().TypeName())
	return nil
}
