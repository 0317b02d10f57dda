// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"reflect"
	"sync"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// Two states of an object have most of their bytes in common. If one of them is decoded
// already, the other is decoded by copying, field by field, the parts that have the same
// bytes, and decoding the rest. Fields are those of protobuf messages: the value of a
// field depends only on its own bytes.

// DecodeIntoLike is [Object.DecodeInto] for an object that is another state of like, which
// was decoded as value: into and value are pointers to the same type, and into is empty.
// The two values then share what they have in common, which takes less time and less
// memory, and a part that was modified in one is modified in the other. So the value is not
// for readers that did not ask for it. Where sharing is not possible, the object is decoded
// as usual.
func (o *Object) DecodeIntoLike(into any, like *Object, value any) error {
	t := reflect.TypeOf(into)
	if reflect.TypeOf(value) != t || !o.resembles(like, t) || reflect.ValueOf(value).IsNil() {
		return o.DecodeInto(into)
	}
	v := reflect.ValueOf(into).Elem()
	if !o.decodeLike(like, v, reflect.ValueOf(value).Elem()) {
		v.SetZero()
		return o.DecodeInto(into)
	}
	return nil
}

// resembles reports whether both objects are messages of the Go type t.
func (o *Object) resembles(like *Object, t reflect.Type) bool {
	return o.encoding == Protobuf && like.encoding == Protobuf && o.kind.GroupVersionKind == like.kind.GroupVersionKind &&
		o.kind.goType() == t && like.kind.goType() == t
}

// decodeLike fills into, and reports whether that was possible.
func (o *Object) decodeLike(like *Object, into, value reflect.Value) (ok bool) {
	raw, s := o.open()
	defer s.free()
	likeRaw, ls := like.open()
	defer ls.free()
	err := o.unmarshal(func() error {
		// The type of the object is not in its bytes.
		if m := layoutOf(into.Type()); m != nil {
			ok = m.fill(into, value, raw, likeRaw)
		}
		return nil
	})
	if ok = ok && err == nil; ok {
		o.setKind(into.Addr().Interface())
	}
	return ok
}

// layout maps the field numbers of a message to the fields of its Go type.
type layout struct{ fields [maxField]layoutField }

// maxField is greater than all field numbers of types that are worth sharing.
const maxField = 64

type layoutField struct {
	// index is the index of the Go field, plus one; 0 if there is none.
	index int
	// message is the layout of a field that is itself a message.
	message *layout
	// list is set for a list of messages.
	list bool
}

var layouts sync.Map // of reflect.Type to *layout

// layoutOf returns the layout of a type, nil if it cannot be read field by field.
func layoutOf(t reflect.Type) *layout {
	if m, ok := layouts.Load(t); ok {
		return m.(*layout)
	}
	m := newLayout(t)
	layouts.Store(t, m)
	return m
}

func newLayout(t reflect.Type) *layout {
	if t.Kind() != reflect.Struct || !protobuf.IsMessage(t) {
		return nil
	}
	m, known := new(layout), false
	for i := range t.NumField() {
		f := t.Field(i)
		_, number := protobuf.Tag(f)
		if number <= 0 || number >= maxField || !f.IsExported() {
			continue
		}
		known = true
		m.fields[number].index = i + 1
		// The layout does not descend into pointers or list elements, so types that
		// contain themselves end too.
		switch {
		case f.Type.Kind() == reflect.Struct:
			m.fields[number].message = newLayout(f.Type)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct && protobuf.IsMessage(f.Type.Elem()):
			m.fields[number].list = true
		}
	}
	if !known {
		return nil // time and quantity read themselves
	}
	return m
}

// span is the position of a field in a message.
type span struct{ from, to, count int }

// spans finds the fields of a message. It returns false if the parts of a field are not
// contiguous, if a field number is too large, or if the message is malformed.
func spans(raw []byte, of *[maxField]span) bool {
	p := protobuf.Scanner{Data: raw}
	for from := 0; p.Next(); from = p.At {
		if p.Field >= maxField {
			return false
		}
		s := &of[p.Field]
		if s.count == 0 {
			s.from = from
		} else if s.to != from {
			return false
		}
		s.to = p.At
		s.count++
	}
	return !p.Bad
}

// fill decodes raw into an empty value, and copies from like the fields that have the
// same bytes.
func (m *layout) fill(into, like reflect.Value, raw, likeRaw []byte) bool {
	var own, other [maxField]span
	if !spans(raw, &own) || !spans(likeRaw, &other) {
		return false
	}
	scratch := newScratch()
	defer scratch.free()
	rest := scratch.b[:0]
	for number := range own {
		a, b, f := own[number], other[number], m.fields[number]
		switch {
		case a.count == 0:
		case f.index == 0:
			rest = append(rest, raw[a.from:a.to]...)
		case b.count > 0 && bytes.Equal(raw[a.from:a.to], likeRaw[b.from:b.to]):
			into.Field(f.index - 1).Set(like.Field(f.index - 1))
		case f.message != nil && a.count == 1 && b.count == 1:
			x, y := protobuf.Scanner{Data: raw[a.from:a.to]}, protobuf.Scanner{Data: likeRaw[b.from:b.to]}
			if !x.Next() || !y.Next() || !f.message.fill(into.Field(f.index-1), like.Field(f.index-1), x.Bytes(), y.Bytes()) || x.Bad || y.Bad {
				return false
			}
		case f.list && a.count == b.count:
			if !fillList(into.Field(f.index-1), like.Field(f.index-1), raw[a.from:a.to], likeRaw[b.from:b.to], a.count) {
				return false
			}
		default:
			rest = append(rest, raw[a.from:a.to]...)
		}
	}
	scratch.b = rest
	return len(rest) == 0 || into.Addr().Interface().(protobuf.Message).Unmarshal(rest) == nil
}

// fillList decodes a list of messages, and copies from a list of the same length the
// elements that have the same bytes.
func fillList(into, like reflect.Value, raw, likeRaw []byte, n int) bool {
	if like.Len() != n {
		return false
	}
	list := reflect.MakeSlice(into.Type(), n, n)
	x, y := protobuf.Scanner{Data: raw}, protobuf.Scanner{Data: likeRaw}
	for i := range n {
		if !x.Next() || !y.Next() {
			return false
		}
		own, other := x.Bytes(), y.Bytes()
		if bytes.Equal(own, other) {
			list.Index(i).Set(like.Index(i))
		} else if list.Index(i).Addr().Interface().(protobuf.Message).Unmarshal(own) != nil {
			return false
		}
	}
	into.Set(list)
	return !x.Bad && !y.Bad
}
