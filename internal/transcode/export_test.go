// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package transcode

import "reflect"

// Transcode appends the JSON of a message if the message need not be decoded.
func Transcode(b []byte, t reflect.Type, raw []byte) ([]byte, bool) {
	p := planOf(t.Elem())
	if p == nil {
		return b, false
	}
	return transcode(b, p, raw)
}

// Decoded returns the names of the Go types within a message, or of its own, that are
// always decoded.
func Decoded(t reflect.Type) map[string]bool {
	found := map[string]bool{}
	var search func(p *plan)
	search = func(p *plan) {
		for _, f := range p.fields {
			if f.form == formDecoded {
				found[f.goType.String()] = true
			} else if f.plan != nil {
				search(f.plan)
			}
		}
	}
	if p := planOf(t.Elem()); p != nil {
		search(p)
	} else {
		found[t.String()] = true
	}
	return found
}

// Canonical exports canonical.
func Canonical(quantity string) bool { return canonical([]byte(quantity)) }
