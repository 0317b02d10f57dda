// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"slices"

	"github.com/watershed-project/watershed/wire"
)

// Answer is what a condition says about an object.
type Answer uint8

const (
	// Unknown means that a facet is unknown: the object must be decoded, or counted as unknown.
	Unknown Answer = iota
	No
	Yes
)

// Condition is a function of the values of some facets. If none of them is an object's own, it
// calls the function once for each distinct combination of values, and remembers the answer for
// each tuple. A goroutine must have its own condition.
type Condition struct {
	paths []string
	test  func(values []any) Answer

	// The fields below are those of the plan of the last object.
	plan   *Plan
	facets []Facet
	// by is the group of all facets. It is own if they are in several.
	by     group
	tuples map[*tuple]Answer
	last   *tuple
	answer Answer
	// known has the answers by the encoded values. The plans of other clusters have the same.
	known  map[string]Answer
	key    []byte
	values []any
}

// maxAnswers limits the answers that a condition remembers.
const maxAnswers = 1 << 16

// NewCondition returns a condition on the facets at some paths. The function gets their values as
// [Record.Value] returns them, in that order; none is unknown. It must depend on them only, and
// must not keep the slice.
func NewCondition(paths []string, test func(values []any) Answer) *Condition {
	return &Condition{
		paths: paths, test: test, values: make([]any, len(paths)),
		tuples: map[*tuple]Answer{}, known: map[string]Answer{},
	}
}

// Has reports whether the kind of a plan has all facets of the condition.
func (c *Condition) Has(p *Plan) bool {
	return p != nil && !slices.ContainsFunc(c.paths, func(path string) bool { return p.index(path) < 0 })
}

// Of returns the answer for an object.
func (c *Condition) Of(o *wire.Object) Answer {
	r := Of(o)
	if r == nil {
		return Unknown
	}
	if p := r.shared.plan; p != c.plan {
		c.use(p)
	}
	if len(c.facets) < len(c.paths) {
		return Unknown
	}
	var t *tuple
	switch c.by {
	case shared:
		t = r.shared
	case placed:
		t = r.placed
	default:
		return c.evaluate(r)
	}
	if t == c.last {
		return c.answer
	}
	answer, ok := c.tuples[t]
	if !ok {
		answer = c.remembered(r)
		if len(c.tuples) >= maxAnswers {
			clear(c.tuples)
		}
		c.tuples[t] = answer
	}
	c.last, c.answer = t, answer
	return answer
}

// use prepares for the records of a plan.
func (c *Condition) use(p *Plan) {
	c.plan, c.last, c.facets = p, nil, c.facets[:0]
	clear(c.tuples)
	for i, path := range c.paths {
		f, ok := p.Facet(path)
		if !ok {
			break
		}
		c.facets = append(c.facets, f)
		if i == 0 {
			c.by = f.group
		} else if c.by != f.group {
			c.by = own
		}
	}
}

// remembered is evaluate for values that were seen before.
func (c *Condition) remembered(r *Record) Answer {
	c.key = c.key[:0]
	for i := range c.facets {
		c.key = append(c.key, r.encoded(&c.facets[i])...)
	}
	if answer, ok := c.known[string(c.key)]; ok {
		return answer
	}
	if len(c.known) >= maxAnswers {
		clear(c.known)
	}
	answer := c.evaluate(r)
	c.known[string(c.key)] = answer
	return answer
}

// evaluate calls the function.
func (c *Condition) evaluate(r *Record) Answer {
	for i := range c.facets {
		var known bool
		if c.values[i], known = decode(r.encoded(&c.facets[i])); !known {
			return Unknown
		}
	}
	return c.test(c.values)
}
