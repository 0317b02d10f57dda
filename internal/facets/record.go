// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"github.com/watershed-project/watershed/internal/views"
	"github.com/watershed-project/watershed/wire"
)

// Record has the facets of one object. It never changes.
type Record struct {
	views.Pinned
	shared, placed *tuple
	// own begins with 1 if a facet is unknown, else with 0. The own values follow.
	own string
}

// none is the record of no state.
var none Record

// recordSize is the size of a record and of its place in the object, without its own values.
const recordSize = 32 + 24

// finish pins the record of what was found to an object, and ends the extraction. Before is the
// record of the previous state of the object, or nil.
func (p *Plan) finish(x *extraction, o *wire.Object, before *Record) {
	unknown := byte(0)
	for g := range groups {
		b := x.encoded[g][:0]
		if g == own {
			b = append(b, 0)
		}
		for _, i := range p.each[g] {
			b = x.slots[i].encode(b, p.facets[i].List)
			if x.slots[i].unknown {
				unknown = 1
			}
		}
		x.encoded[g] = b
	}
	x.encoded[own][0] = unknown
	r := &Record{own: string(x.encoded[own])}
	if before == nil {
		before = &none
	}
	r.shared, r.placed = p.internTuple(x, shared, before.shared), p.internTuple(x, placed, before.placed)
	extractions.Put(x)
	views.Pin(o.Views(), r)
}

// Of returns the record of an object, nil if the object has none.
func Of(o *wire.Object) *Record {
	r, _ := views.PinnedOf[*Record](o.Views())
	return r
}

// Share gives an object the record of another one with the same content, if that has one and
// the object has none, or one of another plan or with unknown facets.
func Share(to, from *wire.Object) {
	r, now := Of(from), Of(to)
	if r != nil && (now == nil || now.shared.plan != r.shared.plan || now.Partial() && !r.Partial()) {
		views.Pin(to.Views(), r)
	}
}

// Plan returns the plan of the record.
func (r *Record) Plan() *Plan { return r.shared.plan }

// Partial reports whether a facet is unknown.
func (r *Record) Partial() bool { return r.own[0] != 0 }

// Size returns about how many bytes the record takes, without the values that it shares.
func (r *Record) Size() int { return recordSize + (len(r.own)+15)&^15 }

// Value returns the value at a path as an unstructured object has it: nil if the object does not
// have the field, a string, an int64, a float64, a bool, or a list of these. It returns false if
// it is unknown, or not a facet of the kind.
func (r *Record) Value(path string) (value any, known bool) {
	if r == nil {
		return nil, false
	}
	f, ok := r.Plan().Facet(path)
	if !ok {
		return nil, false
	}
	return decode(r.encoded(&f))
}

// encoded returns the value of a facet of the record's plan.
func (r *Record) encoded(f *Facet) string {
	switch f.group {
	case shared:
		return r.shared.values[f.at].encoded
	case placed:
		return r.placed.values[f.at].encoded
	}
	b := r.own[1:]
	for range f.at {
		b = b[next(b):]
	}
	return b[:next(b)]
}
