// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package jsondecode decodes JSON into Go values. The reference decoder is the one that client-go
// uses, sigs.k8s.io/json: results and errors are the same, but it takes two to three times as long.
//
// The fast decoder reads the text once, and has a plan for each Go type. It gives up on values
// that do not fit their type, and on what is rare: names that occur twice in a struct, invalid
// UTF-8, deep nesting. Then the reference decoder begins again. So only the usual cases have to
// be the same, and all errors are those of the reference decoder.
//
// The text must be well-formed, as the bytes of all objects are. What malformed text is decoded
// into is undefined.
package jsondecode

import (
	"encoding/json"
	"reflect"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/watershed-project/watershed/internal/scan"
)

// Unmarshal is [utiljson.Unmarshal] for well-formed text.
func Unmarshal(text []byte, into any) error {
	if v := reflect.ValueOf(into); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().IsZero() {
		if fast(text, v) {
			return nil
		}
		v.Elem().SetZero()
	}
	return utiljson.Unmarshal(text, into)
}

// fast decodes into an empty value that v points to, and reports whether it could.
func fast(text []byte, v reflect.Value) bool {
	p := planOf(v.Type().Elem())
	if p.how == byReference {
		return false
	}
	d := decoders.Get().(*decoder)
	d.s, d.depth = scan.JSON{B: text}, 0
	ok := d.value(p, v.Elem()) && !d.s.Bad
	d.s.B = nil
	decoders.Put(d) // unless a type has panicked
	return ok
}

const (
	// maxDepth limits nesting. The reference decoder has a higher limit.
	maxDepth = 500
	// maxKnown limits the length of names that are kept. Values are half as long.
	maxKnown = 64
)

// decoder decodes one text. Its methods return false if it gives up.
type decoder struct {
	s     scan.JSON
	depth int
	// names and values are strings that were made before, by a hash: names in maps repeat, and
	// so do short values.
	names  [512]string
	values [512]any
	// unquoted has the text of the last string with escapes.
	unquoted []byte
	// elements has those of the lists that are being decoded, before their number is known.
	elements []any
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// value decodes the value that comes next into v, which is empty.
func (d *decoder) value(p *plan, v reflect.Value) (ok bool) {
	switch p.how {
	case byMethod:
		raw := d.s.Value()
		return !d.s.Bad && v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(raw) == nil
	case byReference:
		return utiljson.Unmarshal(d.s.Value(), v.Addr().Interface()) == nil
	}
	if d.s.Null() {
		return true // v is empty already
	}
	switch p.how {
	case asPointer:
		v.Set(reflect.New(p.elem.t))
		return d.value(p.elem, v.Elem())
	case asStruct:
		return d.structure(p, v)
	case asSlice:
		return d.slice(p, v)
	case asMap:
		return d.aMap(p, v)
	case asStringMap:
		m := map[string]string{}
		v.Set(reflect.ValueOf(m))
		return d.members(func(name []byte) (ok bool) {
			key := d.known(name)
			if m[key] = ""; !d.s.Null() {
				m[key], ok = d.string()
				return ok
			}
			return true
		})
	case asAny, asAnyMap:
		value, ok := d.any()
		if ok = ok && reflect.TypeOf(value).AssignableTo(p.t); ok {
			v.Set(reflect.ValueOf(value))
		}
		return ok
	default:
		return d.scalar(p, v)
	}
}

// scalar decodes a string, a bool or an integer.
func (d *decoder) scalar(p *plan, v reflect.Value) bool {
	switch p.how {
	case asString:
		s, ok := d.string()
		v.SetString(s)
		return ok
	case asTime:
		s, ok := d.string()
		t, err := time.Parse(time.RFC3339, s)
		v.Addr().Interface().(*metav1.Time).Time = t.Local()
		return ok && err == nil
	case asBool:
		value := string(d.s.Value())
		v.SetBool(value == "true")
		return value == "true" || value == "false"
	default:
		n, err := strconv.ParseInt(string(d.s.Value()), 10, 64)
		v.SetInt(n)
		return err == nil && !v.OverflowInt(n)
	}
}

func (d *decoder) structure(p *plan, v reflect.Value) bool {
	var seen [maxFields / 64]uint64
	return d.members(func(name []byte) bool {
		i, known := p.byName[string(name)]
		if !known {
			d.s.Value()
			return true
		}
		bit := uint64(1) << (i % 64)
		if seen[i/64]&bit != 0 {
			return false // the reference decoder adds the second value to the first one
		}
		seen[i/64] |= bit
		return d.value(p.fields[i].plan, v.FieldByIndex(p.fields[i].index))
	})
}

func (d *decoder) slice(p *plan, v reflect.Value) bool {
	if !d.enter('[') {
		return false
	}
	n := 0
	for ; d.s.More(']'); n++ {
		v.Grow(1)
		if v.SetLen(n + 1); !d.value(p.elem, v.Index(n)) {
			return false
		}
	}
	if n == 0 {
		v.Set(reflect.MakeSlice(p.t, 0, 0))
	}
	d.depth--
	return true
}

func (d *decoder) aMap(p *plan, v reflect.Value) bool {
	v.Set(reflect.MakeMap(p.t))
	key, elem := reflect.New(p.t.Key()).Elem(), reflect.New(p.elem.t).Elem()
	return d.members(func(name []byte) bool {
		key.SetString(d.known(name))
		elem.SetZero()
		ok := d.value(p.elem, elem)
		v.SetMapIndex(key, elem)
		return ok
	})
}

// any decodes the value that comes next into a value of the types that unstructured content has.
func (d *decoder) any() (any, bool) {
	if d.s.Space(); d.s.At == len(d.s.B) {
		return nil, false
	}
	switch d.s.B[d.s.At] {
	case '{':
		m := map[string]any{}
		return m, d.members(func(name []byte) (ok bool) {
			key := d.known(name)
			m[key], ok = d.any()
			return ok
		})
	case '[':
		return d.list()
	case '"':
		text, ok := d.text()
		return d.knownValue(text), ok
	}
	switch literal := string(d.s.Value()); literal {
	case "null":
		return nil, true
	case "true", "false":
		return literal == "true", true
	default:
		if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return n, true
		}
		f, err := strconv.ParseFloat(literal, 64)
		return f, err == nil
	}
}

func (d *decoder) list() ([]any, bool) {
	if !d.enter('[') {
		return nil, false
	}
	began, ok := len(d.elements), true
	for ok && d.s.More(']') {
		var value any
		value, ok = d.any()
		d.elements = append(d.elements, value)
	}
	out := append([]any{}, d.elements[began:]...)
	clear(d.elements[began:])
	d.elements = d.elements[:began]
	d.depth--
	return out, ok
}

// enter moves into an object or array.
func (d *decoder) enter(begin byte) bool {
	d.depth++
	return d.depth <= maxDepth && d.s.Begin(begin)
}

// members calls f with the name of each member of the object that comes next. The name is valid
// until the next string.
func (d *decoder) members(f func(name []byte) bool) bool {
	if !d.enter('{') {
		return false
	}
	for d.s.More('}') {
		name, ok := d.text()
		if !ok || !d.s.Begin(':') || !f(name) {
			return false
		}
	}
	d.depth--
	return true
}

// text returns the string that comes next, valid until the next one.
func (d *decoder) text() ([]byte, bool) {
	d.s.Space()
	b, from := d.s.B, d.s.At+1
	if from > len(b) || b[from-1] != '"' {
		return nil, false
	}
	for i := from; i < len(b) && b[i] != '\\' && b[i] < utf8.RuneSelf; i++ {
		if b[i] == '"' {
			d.s.At = i + 1
			return b[from:i], true
		}
	}
	var err error
	d.unquoted, err = jsontext.AppendUnquote(d.unquoted[:0], d.s.Value())
	return d.unquoted, err == nil
}

// string decodes the string that comes next.
func (d *decoder) string() (string, bool) {
	text, ok := d.text()
	return string(text), ok
}

// known returns a name as a string.
func (d *decoder) known(name []byte) string {
	if len(name) == 0 || len(name) > maxKnown {
		return string(name)
	}
	known := &d.names[place(name)]
	if *known != string(name) {
		*known = string(name)
	}
	return *known
}

// knownValue returns a text as a string in an interface, which takes an allocation of its own.
func (d *decoder) knownValue(text []byte) any {
	if len(text) == 0 || len(text) > maxKnown/2 {
		return string(text)
	}
	known := &d.values[place(text)]
	if s, _ := (*known).(string); s != string(text) {
		*known = string(text)
	}
	return *known
}

// place returns the place of a text among those that are kept.
func place(text []byte) uint32 {
	n := len(text)
	hash := uint32(text[0])*961 + uint32(text[n/2])*31 + uint32(text[n-1])*7 + uint32(n)*131
	return hash * 0x9e3779b1 >> 23
}
