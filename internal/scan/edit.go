// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import "github.com/go-json-experiment/json/jsontext"

// EditMember returns a JSON object with another value for one of its members, or
// without the member if edit returns nil. Anything but an object is returned unchanged.
func EditMember(object []byte, name string, edit func(value []byte) []byte) []byte {
	s := JSON{B: object}
	s.Space()
	if s.At >= len(s.B) || !s.Begin('{') {
		return object
	}
	out := append(make([]byte, 0, len(object)), '{')
	edited := false
	for s.More('}') {
		from := s.At
		key, ok := s.Text()
		s.Space()
		if !ok || s.At >= len(s.B) || s.B[s.At] != ':' {
			return object
		}
		s.At++
		value := s.Value()
		if s.Bad {
			return object
		}
		if string(key) == name {
			now := edit(value)
			edited = true
			if now == nil {
				continue
			}
			// The value ends where the member does.
			out = append(append(out, object[from:s.At-len(value)]...), now...)
		} else {
			out = append(out, object[from:s.At]...)
		}
		out = append(out, ',')
	}
	if s.Bad || !edited {
		return object
	}
	if out[len(out)-1] == ',' {
		out = out[:len(out)-1]
	}
	return append(out, '}')
}

// SetMember returns a JSON object with one of its members set to a value.
func SetMember(object []byte, name string, value []byte) []byte {
	return EditOrAdd(object, name, func([]byte) []byte { return value })
}

// EditOrAdd is EditMember, but adds a missing member, made from an empty object. It
// treats null as an empty object.
func EditOrAdd(object []byte, name string, edit func(value []byte) []byte) []byte {
	if string(object) == "null" {
		object = []byte("{}")
	}
	found := false
	out := EditMember(object, name, func(value []byte) []byte {
		found = true
		return edit(value)
	})
	if found || len(object) == 0 || object[0] != '{' {
		return out
	}
	quoted, err := jsontext.AppendQuote(nil, name)
	if err != nil {
		return out
	}
	out = append(append(append(make([]byte, 0, len(object)+64), '{'), quoted...), ':')
	out = append(out, edit([]byte("{}"))...)
	rest := JSON{B: object, At: 1}
	if rest.More('}') {
		out = append(out, ',')
		return append(out, object[rest.At:]...)
	}
	return append(out, '}')
}

// valueOf calls found with the value of a member of a JSON object, if it has that member.
func valueOf(object []byte, name string, found func(value []byte)) {
	EditMember(object, name, func(value []byte) []byte {
		found(value)
		return value
	})
}
