// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import (
	"bytes"
	"encoding/binary"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// The labels of a packed object are stored next to it, so that selectors need not unpack
// it. They are stored as names and values, each prefixed with its length, in one string
// that all objects with the same labels share. If a name occurs twice in an object it is
// stored once, with the last value, which is the one that a decoder keeps.

// MaxLabels limits the labels that are stored, in bytes. Longer ones are read from the
// unpacked object.
const MaxLabels = 4 << 10

// MostLabels limits the number of an object's labels.
const MostLabels = 10_000

// EachStoredLabel calls a function for every label in stored form.
func EachStoredLabel(labels string, call func(key, value string)) {
	for len(labels) > 0 {
		var key, value string
		key, labels = cutLabel(labels)
		value, labels = cutLabel(labels)
		call(key, value)
	}
}

// FindLabel finds a label among labels in stored form.
func FindLabel(labels, key string) (string, bool) {
	for len(labels) > 0 {
		var name, value string
		name, labels = cutLabel(labels)
		value, labels = cutLabel(labels)
		if name == key {
			return value, true
		}
	}
	return "", false
}

func cutLabel(labels string) (text, rest string) {
	n, at := 0, 0
	for shift := 0; ; shift += 7 {
		c := labels[at]
		at++
		n |= int(c&0x7f) << shift
		if c < 0x80 {
			return labels[at : at+n], labels[at+n:]
		}
	}
}

// AppendLabels appends the labels of an object in stored form, and reports whether they
// are well-formed.
func AppendLabels(b, raw []byte, isJSON bool) ([]byte, bool) {
	var many map[string]string // searching b would take too long
	ok := EachLabel(raw, isJSON, func(k, v []byte) {
		if many == nil && len(b) > MaxLabels {
			many = map[string]string{}
			EachStoredLabel(string(b), func(key, value string) { many[key] = value })
		}
		if many != nil {
			many[string(k)] = string(v)
			return
		}
		if from, to := spanOfLabel(b, k); to > 0 {
			b = append(b[:from], b[to:]...)
		}
		b = appendLabel(b, k, v)
	})
	if many != nil {
		b = b[:0]
		for k, v := range many {
			b = appendLabel(b, k, v)
		}
	}
	return b, ok
}

// appendLabel appends a label in stored form.
func appendLabel[T string | []byte](b []byte, key, value T) []byte {
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// ValidLabels reports whether labels are in stored form.
func ValidLabels(labels string) bool {
	b := []byte(labels)
	for n := 0; len(b) > 0 || n%2 != 0; n++ {
		size, l := binary.Uvarint(b)
		if l <= 0 || size > uint64(len(b)-l) {
			return false
		}
		b = b[l+int(size):]
	}
	return true
}

// spanOfLabel returns the position of a label among labels in stored form, 0 and 0 if it
// is not there.
func spanOfLabel(labels, key []byte) (from, to int) {
	for at := 0; at < len(labels); {
		from = at
		n, l := binary.Uvarint(labels[at:])
		name := labels[at+l : at+l+int(n)]
		at += l + int(n)
		n, l = binary.Uvarint(labels[at:])
		at += l + int(n)
		if bytes.Equal(name, key) {
			return from, at
		}
	}
	return 0, 0
}

// TooManyLabels reports whether an object has more than MostLabels labels. They are read
// under locks that other clusters wait for. It looks only at objects that are large enough.
func TooManyLabels(raw []byte, isJSON bool) bool {
	if len(raw) < 4*MostLabels {
		return false
	}
	n := 0
	EachLabel(raw, isJSON, func([]byte, []byte) { n++ })
	return n > MostLabels
}

// EachLabel calls each for the labels of an object and reports whether they are
// well-formed. A label that occurs twice is passed twice. The slices are valid during the
// call.
func EachLabel(raw []byte, isJSON bool, each func(key, value []byte)) bool {
	if isJSON {
		s := JSON{B: raw}
		if !EnterMember(&s, "metadata") || !EnterMember(&s, "labels") || s.Null() {
			return !s.Bad
		}
		s.Begin('{')
		for name, ok := s.Name(); ok; name, ok = s.Name() {
			value, _ := s.Text()
			each(name, value)
		}
		return !s.Bad
	}
	p := protobuf.Scanner{Data: raw}
	for NextMetadata(&p) {
		m := protobuf.Scanner{Data: p.Bytes()}
		for m.Next() {
			if m.Field != 11 {
				continue
			}
			k, v, ok := Entry(m.Bytes())
			m.Bad = m.Bad || !ok
			if !m.Bad {
				each(k, v)
			}
		}
		p.Bad = p.Bad || m.Bad
	}
	return !p.Bad
}
