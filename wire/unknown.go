// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"math"
	"reflect"
)

// HasUnknownFields reports whether an object in protobuf has fields that its Go type does
// not have: the API server is newer than the k8s.io/api of this program, or older than a
// field was removed. Such fields are in Bytes, but in nothing that is made of the Go type,
// JSON among it. It costs about 1 us for a pod of 5 KB. It is false for an object in JSON,
// for one whose Kind has no Go type, and for one that is malformed.
func (o *Object) HasUnknownFields() bool {
	t := o.kind.goType()
	if o.encoding != Protobuf || t == nil || t.Kind() != reflect.Pointer {
		return false
	}
	raw, scratch := o.open()
	defer scratch.free()
	if len(raw) > math.MaxInt32 {
		return false
	}
	if p := planOf(t.Elem()); p != nil {
		return p.unknown(raw)
	}
	return decodedShorter(t.Elem(), raw)
}

// visit is a field in a walk that looks for unknown fields.
type visit struct {
	// plan is that of a message; nil for a value that is not looked into.
	plan *plan
	// foreign is the type of a message without a plan.
	foreign reflect.Type
	wire    uint8
	known   bool
	mapped  bool
}

// plotVisits makes the visits from the fields.
func (p *plan) plotVisits() {
	p.visits = make([]visit, len(p.index))
	for number, of := range p.index {
		if !of.known {
			continue
		}
		f := &p.fields[of.at]
		s := visit{wire: of.wire, known: true, mapped: f.mapped}
		switch f.form {
		case formMessage:
			s.plan = f.plan
		case formForeign:
			s.foreign = f.foreign
		}
		p.visits[number] = s
	}
}

// unknown reports whether a message, or one within it, has a field that is not planned.
func (p *plan) unknown(raw []byte) bool {
	visits := p.visits
	for at := 0; at < len(raw); {
		number, from, wire := int(raw[at]>>3), at+2, uint8(wireBytes)
		to := shortEnd(raw, at)
		if to == 0 {
			var n int32
			if n, wire, from, to, _ = fieldAt(raw, at); to < 0 {
				return false
			}
			number = int(n)
		}
		at = to
		if number >= len(visits) {
			return true
		}
		s := &visits[number]
		switch {
		case !s.known:
			return true
		case wire != s.wire:
			return false
		case s.plan == nil && s.foreign == nil:
			continue
		}
		value := raw[from:to]
		if s.mapped {
			e, ok := parseEntry(value)
			if !ok {
				return false
			}
			value = e.value
		}
		if s.plan != nil && s.plan.unknown(value) || s.foreign != nil && decodedShorter(s.foreign, value) {
			return true
		}
	}
	return false
}

// decodedShorter reports whether a message has fewer bytes once it was decoded, as one
// with unknown fields has. It is for types without a plan.
func decodedShorter(t reflect.Type, raw []byte) bool {
	if t == nil {
		return false
	}
	value, ok := reflect.New(t).Interface().(interface {
		unmarshaler
		Size() int
	})
	return ok && value.Unmarshal(raw) == nil && value.Size() < len(raw)
}
