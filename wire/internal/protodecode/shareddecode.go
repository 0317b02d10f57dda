// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package protodecode

import (
	"bytes"
	"reflect"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/protobuf"
)

// Two states of an object have most of their bytes in common. If one of them is decoded
// already, the other is decoded by copying, field by field, the parts that have the same
// bytes, and decoding the rest. Fields are those of protobuf messages: the value of a
// field depends only on its own bytes.

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

// Fill decodes raw into an empty value, and copies from like the fields that have the
// same bytes.
func (m *Layout) Fill(into, like reflect.Value, raw, likeRaw []byte) bool {
	var own, other [maxField]span
	if !spans(raw, &own) || !spans(likeRaw, &other) {
		return false
	}
	scratch := buffer.NewScratch()
	defer scratch.Free()
	rest := scratch.B[:0]
	for number := range own {
		a, b, f := own[number], other[number], m.fields[number]
		switch {
		case a.count == 0:
		case f.index == 0:
			rest = append(rest, raw[a.from:a.to]...)
		case b.count > 0 && bytes.Equal(raw[a.from:a.to], likeRaw[b.from:b.to]):
			into.Field(f.index - 1).Set(like.Field(f.index - 1))
		case f.message != nil && a.count == 1 && b.count == 1:
			x := protobuf.Scanner{Data: raw[a.from:a.to]}
			y := protobuf.Scanner{Data: likeRaw[b.from:b.to]}
			if !x.Next() || !y.Next() {
				return false
			}
			if !f.message.Fill(into.Field(f.index-1), like.Field(f.index-1), x.Bytes(), y.Bytes()) || x.Bad || y.Bad {
				return false
			}
		case f.list && a.count == b.count:
			if !fillList(into.Field(f.index-1), like.Field(f.index-1), raw[a.from:a.to], likeRaw[b.from:b.to],
				a.count) {
				return false
			}
		default:
			rest = append(rest, raw[a.from:a.to]...)
		}
	}
	scratch.B = rest
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
