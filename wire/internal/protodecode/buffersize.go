// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package protodecode

import (
	"reflect"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// Reserve allocates the lists of an empty value for the elements that raw has. The
// generated code appends them one by one: it would allocate a list of five elements four
// times, and keep room for three more. Lists in pointers and list elements are not
// reserved.
func (m *Layout) Reserve(into reflect.Value, raw []byte) {
	var count [maxField]int
	p := protobuf.Scanner{Data: raw}
	for p.Next() {
		if p.Field >= maxField || p.Type != protobuf.TypeBytes {
			continue
		}
		switch f := &m.fields[p.Field]; {
		case f.list:
			count[p.Field]++
		case f.message != nil:
			f.message.Reserve(into.Field(f.index-1), p.Bytes())
		}
	}
	for number, n := range count {
		if n > 1 {
			list := into.Field(m.fields[number].index - 1)
			list.Set(reflect.MakeSlice(list.Type(), 0, n))
		}
	}
}
