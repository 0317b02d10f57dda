// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package transcode

import (
	"math"
	"reflect"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// HasUnknownFields reports whether a protobuf message, or one nested in it, has fields
// that its Go type does not have. t is the type of a pointer to that Go type.
// HasUnknownFields returns false for a malformed message.
func HasUnknownFields(t reflect.Type, raw []byte) bool {
	if t == nil || t.Kind() != reflect.Pointer || len(raw) > math.MaxInt32 {
		return false
	}
	if p := planOf(t.Elem()); p != nil {
		return p.unknown(raw)
	}
	return decodedShorter(t.Elem(), raw)
}

// unknown reports whether a message, or one nested in it, has a field that its plan does
// not contain.
func (p *plan) unknown(raw []byte) bool {
	visits := p.visits
	for at := 0; at < len(raw); {
		number, from, wire := int(raw[at]>>3), at+2, uint8(protobuf.TypeBytes)
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
		case s.plan == nil && s.goType == nil:
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
		if s.plan != nil && s.plan.unknown(value) || s.goType != nil && decodedShorter(s.goType, value) {
			return true
		}
	}
	return false
}

// decodedShorter reports whether a message would be shorter if it were decoded and
// encoded again. It would be shorter if it has unknown fields, because the Go type does
// not keep them. This check is used for types without a plan.
func decodedShorter(t reflect.Type, raw []byte) bool {
	value, ok := reflect.New(t).Interface().(interface {
		protobuf.Message
		Size() int
	})
	return ok && value.Unmarshal(raw) == nil && value.Size() < len(raw)
}
