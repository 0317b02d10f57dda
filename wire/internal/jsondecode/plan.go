// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package jsondecode

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// how says how the values of a type are decoded.
type how uint8

const (
	// byReference leaves a value to the reference decoder.
	byReference how = iota
	// byMethod calls UnmarshalJSON.
	byMethod
	asTime
	asString
	asBool
	asInt
	asAny
	asAnyMap
	asStringMap
	asMap
	asSlice
	asPointer
	asStruct
)

// plan says how values of one Go type are decoded.
type plan struct {
	how how
	t   reflect.Type
	// elem is the plan of the elements of a map or slice, or of what a pointer points to.
	elem   *plan
	fields []field
	byName map[string]int
}

// field is a field of a struct, or of a struct that is embedded in it.
type field struct {
	index []int
	plan  *plan
}

// maxFields limits the fields of a struct, so that those seen fit into a small set.
const maxFields = 256

// plain has the characters of usual names. Names with others may be invalid.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./$"

var (
	plans           sync.Map // of reflect.Type to *plan
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// planOf returns the plan of a type.
func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	b := planner{types: map[reflect.Type]*plan{}}
	p := b.plan(t)
	if b.odd {
		p = &plan{t: t}
	}
	plans.Store(t, p)
	return p
}

// planner makes the plan of one type. Types may contain themselves.
type planner struct {
	types map[reflect.Type]*plan
	// odd is set if the reference decoder treats a type within another one differently than on its own.
	odd bool
}

func (b *planner) plan(t reflect.Type) *plan {
	if p := b.types[t]; p != nil {
		return p
	}
	p := &plan{t: t}
	b.types[t] = p
	kind, address := t.Kind(), reflect.PointerTo(t)
	switch {
	case kind != reflect.Pointer && t.Name() == "" && address.NumMethod() > 0:
		b.odd = true // it has methods of an embedded type, which count only behind a pointer
	case kind == reflect.Pointer && t.Name() != "":
		b.odd = true // the methods of what it points to do not count
	case kind == reflect.Pointer:
		p.how, p.elem = asPointer, b.plan(t.Elem())
	case t == reflect.TypeFor[metav1.Time]():
		p.how = asTime
	case address.Implements(unmarshaler):
		p.how = byMethod
	case address.Implements(textUnmarshaler), t == reflect.TypeFor[json.Number]():
	default:
		b.planKind(p)
	}
	return p
}

// planKind makes the plan of a type without methods for decoding. Kinds that objects rarely have are
// left to the reference decoder.
func (b *planner) planKind(p *plan) {
	switch t := p.t; t.Kind() {
	case reflect.String:
		p.how = asString
	case reflect.Bool:
		p.how = asBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.how = asInt
	case reflect.Interface:
		if t.NumMethod() == 0 {
			p.how = asAny
		}
	case reflect.Slice:
		if p.elem = b.plan(t.Elem()); t.Elem().Kind() != reflect.Uint8 {
			p.how = asSlice // and bytes are text in base64
		}
	case reflect.Map:
		p.elem = b.plan(t.Elem())
		switch {
		case t.Key().Kind() != reflect.String || reflect.PointerTo(t.Key()).Implements(textUnmarshaler):
		case reflect.TypeFor[map[string]string]().AssignableTo(t):
			p.how = asStringMap
		case reflect.TypeFor[map[string]any]().AssignableTo(t):
			p.how = asAnyMap
		default:
			p.how = asMap
		}
	case reflect.Struct:
		p.byName = map[string]int{}
		if b.addFields(p, t, nil) && len(p.fields) <= maxFields {
			p.how = asStruct
		}
	}
}

// addFields adds the fields of a struct. It returns false if rules decide which of several
// fields a name means, or if a tag is rare.
func (b *planner) addFields(p *plan, t reflect.Type, index []int) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		at := append(index[:len(index):len(index)], i)
		switch {
		case !f.IsExported() && !f.Anonymous, tag == "-":
			continue
		case !f.IsExported(), strings.Trim(name, plain) != "", strings.Contains(options, "string"):
			return false
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			if !b.addFields(p, f.Type, at) {
				return false
			}
			continue
		case f.Anonymous && name == "":
			return false
		case name == "":
			name = f.Name
		}
		if _, twice := p.byName[name]; twice {
			return false
		}
		p.byName[name] = len(p.fields)
		p.fields = append(p.fields, field{index: at, plan: b.plan(f.Type)})
	}
	return true
}
