// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package protodecode decodes protobuf messages field by field, as far as their Go types allow
// that: it shares with another state of an object the fields that have the same bytes, and
// allocates lists with their final length.
package protodecode

import (
	"reflect"
	"sync"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// Layout maps the field numbers of a message to the fields of its Go type.
type Layout struct{ fields [maxField]field }

// maxField is greater than all field numbers of types that are worth sharing.
const maxField = 64

type field struct {
	// index is the index of the Go field, plus one; 0 if there is none.
	index int
	// message is the layout of a field that is itself a message.
	message *Layout
	// list is set for a list of messages.
	list bool
}

var layouts sync.Map // of reflect.Type to *Layout

// LayoutOf returns the layout of a type, nil if it cannot be read field by field.
func LayoutOf(t reflect.Type) *Layout {
	if m, ok := layouts.Load(t); ok {
		return m.(*Layout)
	}
	m := newLayout(t)
	layouts.Store(t, m)
	return m
}

func newLayout(t reflect.Type) *Layout {
	if t.Kind() != reflect.Struct || !protobuf.IsMessage(t) {
		return nil
	}
	m, known := new(Layout), false
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
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct &&
			protobuf.IsMessage(f.Type.Elem()):
			m.fields[number].list = true
		}
	}
	if !known {
		return nil // time and quantity read themselves
	}
	return m
}
