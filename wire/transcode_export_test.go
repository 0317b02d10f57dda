// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

// Message is an object of any bytes, which nobody has looked at.
func Message(raw []byte, kind *Kind) *Object {
	o := &Object{kind: kind, key: "any", encoding: Protobuf}
	o.body.Store(&body{data: raw})
	return o
}

// Transcode appends the JSON of a message if that needs no decoding of it.
func Transcode(b, raw []byte, kind *Kind) ([]byte, bool) {
	p := planOf(kind.goType().Elem())
	if p == nil {
		return b, false
	}
	return transcode(b, p, raw)
}

// Foreign are the members of a kind that are always decoded, by the names of their
// types.
func Foreign(kind *Kind) map[string]bool {
	found := map[string]bool{}
	var look func(p *plan)
	look = func(p *plan) {
		for _, f := range p.fields {
			if f.form == formForeign {
				found[f.foreign.String()] = true
			} else if f.plan != nil {
				look(f.plan)
			}
		}
	}
	if p := planOf(kind.goType().Elem()); p != nil {
		look(p)
	} else {
		found[kind.goType().String()] = true
	}
	return found
}

// Canonical is canonical.
func Canonical(quantity string) bool { return canonical([]byte(quantity)) }
