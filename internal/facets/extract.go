// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/wire"
)

const (
	// maxElements limits the elements of a list, and maxText the bytes of one value.
	maxElements, maxText = 64, 1 << 10
)

// extraction collects the values of the facets of one object. It is used again for others.
type extraction struct {
	slots   []slot
	encoded [groups][]byte
	// text has the texts of the slots when the bytes of the object are not held any more.
	text  []byte
	tuple []*interned
	key   []byte
}

// slot has what was found of a facet.
type slot struct {
	values  []scalar
	unknown bool
}

// scalar is a value that is neither a list nor an object. Its text refers to the object's bytes.
type scalar struct {
	tag    byte
	text   []byte
	number int64
}

var extractions = sync.Pool{New: func() any { return new(extraction) }}

func (p *Plan) begin() *extraction {
	x := extractions.Get().(*extraction)
	x.slots = slices.Grow(x.slots[:0], len(p.facets))[:len(p.facets)]
	for i := range x.slots {
		x.slots[i].values, x.slots[i].unknown = x.slots[i].values[:0], false
	}
	x.text = x.text[:0]
	return x
}

// Attach computes the facets of an object and pins them to it. Before is the previous state of the
// object, or nil.
func (p *Plan) Attach(o, before *wire.Object) {
	x := p.begin()
	x.read(o, &p.all)
	p.finish(x, o, recordOf(before))
}

// Restore is Attach for an object that was stored in a file. Transformed means that managed fields
// may have been removed before: if the object has none, their facets are unknown.
func (p *Plan) Restore(o *wire.Object, transformed bool) {
	x := p.begin()
	x.read(o, &p.all)
	for i := range p.facets {
		if s := &x.slots[i]; transformed && len(s.values) == 0 && isManaged(p.facets[i].steps) {
			s.unknown = true
		}
	}
	p.finish(x, o, nil)
}

// recordOf is Of for an object that may be nil.
func recordOf(o *wire.Object) *Record {
	if o == nil {
		return nil
	}
	return Of(o)
}

// Around returns a transformation whose results have facets. The facets of managed fields are
// those of the object as it arrived; the others are those of the result, so that nothing which
// a transformation removes stays in a facet. Drops means that the transformation only drops
// metadata: then one scan is enough. Transform may be nil. Before returns the previous state of
// an object, or nil.
func (p *Plan) Around(
	transform func(*wire.Object) (*wire.Object, error), drops bool, before func(key string) *wire.Object,
) func(*wire.Object) (*wire.Object, error) {
	first := &p.early
	if transform == nil || drops {
		first = &p.all
	}
	return func(o *wire.Object) (*wire.Object, error) {
		x := p.begin()
		x.read(o, first)
		if transform != nil {
			var err error
			if o, err = transform(o); err != nil || o == nil {
				extractions.Put(x)
				return o, err
			}
		}
		if first == &p.early {
			x.read(o, &p.late)
		}
		p.finish(x, o, recordOf(before(o.Key())))
		return o, nil
	}
}

// read scans an object for the facets of a tree.
func (x *extraction) read(o *wire.Object, t *tree) {
	raw, opened := o.Cell().Open()
	defer opened.Free()
	if o.Encoding() == wire.JSON {
		s := scan.JSON{B: raw}
		x.json(&s, t.json)
		if s.Bad {
			x.lose(t.json)
		}
	} else if o.Kind().New == nil {
		x.lose(t.json)
	} else {
		root, missing := t.of(func() reflect.Type { return reflect.TypeOf(o.Kind().New()).Elem() })
		for _, i := range missing {
			x.slots[i].unknown = true
		}
		if !x.message(raw, root) {
			x.lose(root)
		}
	}
	x.own()
}

// own copies the texts that were found, whose bytes are of the object.
func (x *extraction) own() {
	for i := range x.slots {
		for j := range x.slots[i].values {
			v := &x.slots[i].values[j]
			from := len(x.text)
			x.text = append(x.text, v.text...)
			v.text = x.text[from:]
		}
	}
}

// lose makes all facets of a tree unknown.
func (x *extraction) lose(n *node) {
	if n.leaf >= 0 {
		x.slots[n.leaf].unknown = true
	}
	for _, c := range n.children {
		x.lose(c)
	}
}

// element begins an element of a list. The facets below it have no value until one is set.
func (x *extraction) element(n *node) {
	for _, i := range n.below {
		s := &x.slots[i]
		if len(s.values) == maxElements {
			s.unknown = true
			s.values = s.values[:0]
		}
		s.values = append(s.values, scalar{tag: tagNull})
	}
}

// set sets the value of a facet: that of the last element of a list, or the only one.
func (x *extraction) set(i int, v scalar) {
	s := &x.slots[i]
	if v.tag == tagUnknown || len(v.text) > maxText {
		s.unknown = true
		return
	}
	if n := len(s.values); n > 0 {
		s.values[n-1] = v
		return
	}
	s.values = append(s.values, v)
}

// json reads the value that comes next.
func (x *extraction) json(s *scan.JSON, n *node) {
	if !n.each {
		x.jsonValue(s, n)
		return
	}
	if s.Null() {
		return
	}
	if s.At >= len(s.B) || s.B[s.At] != '[' {
		s.Value()
		x.lose(n)
		return
	}
	for s.Begin('['); s.More(']'); {
		x.element(n)
		x.jsonValue(s, n)
	}
}

func (x *extraction) jsonValue(s *scan.JSON, n *node) {
	if len(n.children) == 0 {
		x.set(n.leaf, jsonScalar(s.Value()))
		return
	}
	if s.Null() {
		return
	}
	if s.At >= len(s.B) || s.B[s.At] != '{' {
		s.Value()
		x.lose(n)
		return
	}
	if n.leaf >= 0 {
		x.slots[n.leaf].unknown = true
	}
	s.Begin('{')
	var seen uint64
	for name, ok := s.Name(); ok; name, ok = s.Name() {
		at := slices.IndexFunc(n.children, func(c *node) bool { return c.name == string(name) })
		if at < 0 {
			s.Value()
			continue
		}
		twice := at >= 64 || seen&(1<<at) != 0 // decoders disagree on which of two counts
		seen |= 1 << at
		from := s.At
		x.member(s, n.children[at], twice)
		// A member can be the value of one facet and a list of others.
		for _, c := range n.children[at+1:] {
			if c.name == n.children[at].name {
				again := scan.JSON{B: s.B, At: from}
				x.member(&again, c, twice)
			}
		}
	}
}

// member reads the value that comes next, or skips it if its facets cannot be known.
func (x *extraction) member(s *scan.JSON, n *node, unknown bool) {
	if unknown {
		x.lose(n)
		s.Value()
		return
	}
	x.json(s, n)
}

// jsonScalar returns a value of JSON.
func jsonScalar(value []byte) scalar {
	switch {
	case len(value) == 0:
		return scalar{tag: tagUnknown}
	case value[0] == '"':
		s := scan.JSON{B: value}
		unquoted, _ := s.Text()
		if s.Bad {
			return scalar{tag: tagUnknown}
		}
		return scalar{tag: tagText, text: unquoted}
	case string(value) == "null":
		return scalar{tag: tagNull}
	case string(value) == "true":
		return scalar{tag: tagTrue}
	case string(value) == "false":
		return scalar{tag: tagFalse}
	case value[0] == '{' || value[0] == '[':
		return scalar{tag: tagUnknown}
	}
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return scalar{tag: tagInteger, number: n}
	}
	if _, err := strconv.ParseFloat(string(value), 64); err == nil {
		return scalar{tag: tagFloat, text: value}
	}
	return scalar{tag: tagUnknown}
}

// message reads a message, and reports whether it is well-formed.
func (x *extraction) message(raw []byte, n *node) bool {
	if n.leaf >= 0 {
		x.slots[n.leaf].unknown = true
	}
	p := protobuf.Scanner{Data: raw}
	for p.Next() {
		for _, c := range n.children {
			if c.number == p.Field {
				if c.each {
					x.element(c)
				}
				x.field(&p, c)
			}
		}
	}
	return !p.Bad
}

// field reads the field that a scanner is at.
func (x *extraction) field(p *protobuf.Scanner, n *node) {
	v := scalar{tag: tagNull}
	ok := true
	switch n.form {
	case inMessage:
		p.Bad = !x.message(p.Bytes(), n) || p.Bad
		return
	case inMap:
		p.Bad = !x.entry(p.Bytes(), n) || p.Bad
		return
	case text:
		v.tag, v.text = tagText, p.Bytes()
		ok = len(v.text) > 0
	case boolean:
		v.tag = tagFalse
		if ok = p.Varint() != 0; ok {
			v.tag = tagTrue
		}
	case int32bit:
		v.tag, v.number = tagInteger, int64(int32(p.Varint()))
		ok = v.number != 0
	case int64bit:
		v.tag, v.number = tagInteger, int64(p.Varint())
		ok = v.number != 0
	case quantity:
		v = quantityOf(p)
	case moment:
		v = momentOf(p)
	}
	if !ok && n.omit && !n.pointer {
		v = scalar{tag: tagNull}
	}
	x.set(n.leaf, v)
}

// entry reads an entry of a map, and reports whether it is well-formed.
func (x *extraction) entry(raw []byte, n *node) bool {
	key, _, ok := scan.Entry(raw)
	if !ok {
		return false
	}
	for _, c := range n.children {
		if c.name != string(key) {
			continue
		}
		p := protobuf.Scanner{Data: raw}
		found := false
		for p.Next() {
			if p.Field == 2 {
				found = true
				x.field(&p, c)
			}
		}
		if !found && c.form == text {
			x.set(c.leaf, scalar{tag: tagText})
		}
		return !p.Bad
	}
	return true
}

// quantityOf returns a quantity as JSON has it.
func quantityOf(p *protobuf.Scanner) scalar {
	v := scalar{tag: tagText}
	m := protobuf.Scanner{Data: p.Bytes()}
	for m.Next() {
		if m.Field == 1 {
			v.text = m.Bytes()
		}
	}
	p.Bad = p.Bad || m.Bad
	if plainQuantity(v.text) {
		return v
	}
	if len(v.text) == 0 {
		v.text = []byte("0")
		return v
	}
	q, err := resource.ParseQuantity(string(v.text))
	if err != nil {
		return scalar{tag: tagUnknown}
	}
	v.text = []byte(q.String())
	return v
}

// plainQuantity reports whether a quantity is surely in the canonical form: an integer that no
// greater suffix can express, with a suffix or none.
func plainQuantity(q []byte) bool {
	n := 0
	for n < len(q) && q[n] >= '0' && q[n] <= '9' {
		n++
	}
	if n == 0 || n > 15 || q[0] == '0' && (n > 1 || len(q) > 1) {
		return false
	}
	switch string(q[n:]) {
	case "", "m", "k", "M", "G":
		return q[0] == '0' || n < 4 || string(q[n-3:n]) != "000"
	case "Ki", "Mi", "Gi":
		number := 0
		for _, c := range q[:n] {
			number = 10*number + int(c-'0')
		}
		return number%1024 != 0
	}
	return false
}

// momentOf returns a time as JSON has it.
func momentOf(p *protobuf.Scanner) scalar {
	v := scalar{tag: tagNull}
	var seconds int64
	found := false
	m := protobuf.Scanner{Data: p.Bytes()}
	for m.Next() {
		switch m.Field {
		case 1:
			seconds, found = int64(m.Varint()), true
		case 2:
			m.Varint()
			found = true
		}
	}
	p.Bad = p.Bad || m.Bad
	if t := time.Unix(seconds, 0).UTC(); found && !t.IsZero() {
		if t.Year() < 0 || t.Year() > 9999 {
			return scalar{tag: tagUnknown}
		}
		return scalar{tag: tagMoment, number: seconds}
	}
	return v
}

// encode appends a facet's value.
func (s *slot) encode(b []byte, list bool) []byte {
	switch {
	case s.unknown:
		return append(b, tagUnknown)
	case list:
		b = append(b, tagList, byte(len(s.values)))
		for i := range s.values {
			b = s.values[i].encode(b)
		}
		return b
	case len(s.values) == 0:
		return append(b, tagNull)
	}
	return s.values[0].encode(b)
}
