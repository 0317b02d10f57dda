// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"encoding/binary"
	"unique"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// The labels of a packed object are stored next to it, so that selectors need not unpack
// it. They are stored as names and values, each prefixed with its length, in one string
// that all objects with the same labels share. If a name occurs twice in an object it is
// stored once, with the last value, which is the one that a decoder keeps.

// unlabelled marks an object whose labels are not stored.
var unlabelled unique.Handle[string]

// maxLabels limits the labels that are stored, in bytes. Longer ones are read from the
// unpacked object.
const maxLabels = 4 << 10

// mostLabels limits the number of an object's labels.
const mostLabels = 10_000

// Label returns the value of one label. It allocates only the value. It does not unpack
// the object, unless its labels are malformed.
func (o *Object) Label(key string) (string, bool) {
	b := o.body.Load()
	if b.how != nil && o.labels != unlabelled {
		return findLabel(o.labels.Value(), key)
	}
	raw, scratch := o.open()
	defer scratch.free()
	var value string
	found := false
	ok := eachLabel(raw, o.encoding, func(k, v []byte) {
		if string(k) == key {
			value, found = string(v), true
		}
	})
	return value, found && ok
}

// Labels returns the object's labels for use by a selector. Each lookup reads one label;
// nothing is decoded.
func (o *Object) Labels() labels.Labels { return labelled{o} }

type labelled struct{ object *Object }

func (l labelled) Has(label string) bool {
	_, ok := l.object.Label(label)
	return ok
}

func (l labelled) Get(label string) string {
	value, _ := l.object.Label(label)
	return value
}

func (l labelled) Lookup(label string) (string, bool) { return l.object.Label(label) }

// EachLabel calls a function for every label. It does not unpack the object, unless its
// labels are malformed.
func (o *Object) EachLabel(call func(key, value string)) {
	b := o.body.Load()
	if b.how != nil && o.labels != unlabelled {
		eachKept(o.labels.Value(), call)
		return
	}
	raw, scratch := o.open()
	defer scratch.free()
	s := newScratch()
	defer s.free()
	s.b, _ = appendLabels(s.b[:0], raw, o.encoding)
	eachKept(string(s.b), call)
}

// eachKept calls a function for every label in stored form.
func eachKept(labels string, call func(key, value string)) {
	for len(labels) > 0 {
		var key, value string
		key, labels = cutLabel(labels)
		value, labels = cutLabel(labels)
		call(key, value)
	}
}

// findLabel finds a label among labels in stored form.
func findLabel(labels, key string) (string, bool) {
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

// keepLabels returns the labels in stored form. The labels in last are probably the same,
// and comparing them is faster than interning the string again.
func keepLabels(raw []byte, e Encoding, last unique.Handle[string]) unique.Handle[string] {
	s := newScratch()
	defer s.free()
	var ok bool
	if s.b, ok = appendLabels(s.b[:0], raw, e); !ok || len(s.b) > maxLabels {
		return unlabelled
	}
	if last != unlabelled && last.Value() == string(s.b) {
		return last
	}
	return unique.Make(string(s.b))
}

// appendLabels appends the labels of an object in stored form, and reports whether they
// are well-formed.
func appendLabels(b, raw []byte, e Encoding) ([]byte, bool) {
	var many map[string]string // searching b would take too long
	ok := eachLabel(raw, e, func(k, v []byte) {
		if many == nil && len(b) > maxLabels {
			many = map[string]string{}
			eachKept(string(b), func(key, value string) { many[key] = value })
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

// tooManyLabels reports whether an object has more than mostLabels labels. They are read
// under locks that other clusters wait for. It looks only at objects that are large enough.
func tooManyLabels(raw []byte, e Encoding) bool {
	if len(raw) < 4*mostLabels {
		return false
	}
	n := 0
	eachLabel(raw, e, func([]byte, []byte) { n++ })
	return n > mostLabels
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

// eachLabel calls each for the labels of an object and reports whether they are
// well-formed. A label that occurs twice is passed twice. The slices are valid during the
// call.
func eachLabel(raw []byte, e Encoding, each func(key, value []byte)) bool {
	if e == JSON {
		s := jsonScan{b: raw}
		if !enterMember(&s, "metadata") || !enterMember(&s, "labels") || s.null() {
			return !s.bad
		}
		s.begin('{')
		for name, ok := s.name(); ok; name, ok = s.name() {
			value, _ := s.text()
			each(name, value)
		}
		return !s.bad
	}
	p := protobuf.Scanner{Data: raw}
	for nextMetadata(&p) {
		m := protobuf.Scanner{Data: p.Bytes()}
		for m.Next() {
			if m.Field != 11 {
				continue
			}
			k, v, ok := protoEntry(m.Bytes())
			m.Bad = m.Bad || !ok
			if !m.Bad {
				each(k, v)
			}
		}
		p.Bad = p.Bad || m.Bad
	}
	return !p.Bad
}
