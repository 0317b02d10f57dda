// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/transcode"
)

// Route is a path in the protobuf message of a Go type: the numbers of its fields and the
// kind of the last one. A nil route means that the field is not a string, a boolean or an
// integer, or is within a list or a map.
type Route struct {
	numbers []int32
	leaf    reflect.Kind
}

// Field returns the value at a path of members, nil if there is none.
func (s *JSON) Field(names []string) (value []byte, ok bool) {
	if len(names) == 0 {
		return s.Value(), true
	}
	if s.Null() {
		return nil, true
	}
	s.Begin('{')
	found := false
	for name, more := s.Name(); more; name, more = s.Name() {
		if string(name) != names[0] {
			s.Value()
			continue
		}
		if found {
			return nil, false // decoders disagree on which one counts
		}
		found = true
		if value, ok = s.Field(names[1:]); !ok {
			return nil, false
		}
	}
	return value, !s.Bad
}

// maxDigits is the number of digits up to which a number surely fits an int64.
const maxDigits = 18

// Scalar returns a JSON value as the text that its decoded value prints as.
func Scalar(value []byte) (string, bool) {
	switch text := string(value); {
	case text == "", text == "null":
		return "", true
	case text == "true", text == "false", text == "0":
		return text, true
	case text[0] == '"':
		s := JSON{B: value}
		unquoted, _ := s.Text()
		return string(unquoted), !s.Bad
	default:
		digits := strings.TrimPrefix(text, "-")
		if len(digits) > maxDigits || digits == "" || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
			return "", false
		}
		return text, true
	}
}

// NewRoute returns the path in the message of a type, nil if it has none.
func NewRoute(t reflect.Type, names []string) *Route {
	r := new(Route)
	for _, name := range names {
		if t = pointee(t); t == nil || !protobuf.IsMessage(t) || transcode.MarshalsItself(t) {
			return nil
		}
		number, field := messageField(t, name)
		if number == 0 {
			return nil
		}
		r.numbers, t = append(r.numbers, number), field
	}
	t = pointee(t)
	switch r.leaf = t.Kind(); r.leaf {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64:
		if !transcode.MarshalsItself(t) {
			return r
		}
	}
	return nil
}

func pointee(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// messageField finds the field that has a name in JSON, and returns its number in the
// message and its type; 0 if there is none.
func messageField(t reflect.Type, name string) (int32, reflect.Type) {
	if t.Kind() != reflect.Struct {
		return 0, nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if member, _, _ := strings.Cut(f.Tag.Get("json"), ","); member != name {
			continue
		}
		_, number := protobuf.Tag(f)
		return int32(number), f.Type
	}
	return 0, nil
}

// Read returns the value in a message. If a field occurs several times, the last one
// counts, as in the generated code.
func (r *Route) Read(raw []byte) (text string, ok bool) {
	found, value, num, ok := walk(raw, r.numbers, r.leaf == reflect.String)
	switch {
	case !ok || !found:
		return "", ok
	case r.leaf == reflect.String:
		return string(value), true
	case r.leaf == reflect.Bool:
		return strconv.FormatBool(num != 0), true
	case r.leaf == reflect.Int32:
		return strconv.FormatInt(int64(int32(num)), 10), true
	default:
		return strconv.FormatInt(int64(num), 10), true
	}
}

// walk follows the numbers of fields into messages within messages.
func walk(raw []byte, numbers []int32, text bool) (found bool, value []byte, num uint64, ok bool) {
	p := protobuf.Scanner{Data: raw}
	for p.Next() {
		if p.Field != numbers[0] {
			continue
		}
		if len(numbers) > 1 {
			inner, v, n, ok := walk(p.Bytes(), numbers[1:], text)
			if !ok {
				return false, nil, 0, false
			}
			if inner {
				found, value, num = true, v, n
			}
			continue
		}
		found = true
		if text {
			value = p.Bytes()
		} else {
			num = p.Varint()
		}
	}
	return found, value, num, !p.Bad
}
