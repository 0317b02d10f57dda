// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"bytes"
	"fmt"
	"sort"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// template is an object in one encoding, with the places where objects of its shape
// differ. All values have the length of those that they replace, so the length of an
// object is known before it is made.
type template struct {
	raw    []byte
	places []place

	// frames has the bytes around the object.
	frames [frames]around
}

// frame is the context in which an object is sent. The event of a change is a frame too,
// see eventFrame.
type frame int

const (
	noFrame    = frame(deleted) + 1 + iota // the object alone
	itemFrame                              // an item of a list
	wholeFrame                             // a response
	frames
)

// eventFrame returns the frame of an event.
func eventFrame(kind changeKind) frame { return frame(kind) }

// place is the place of a value.
type place struct {
	at    int32
	value int16 // its offset among the values
	size  int16
}

// mark defines where a value is in an object: after the first skip bytes of every
// occurrence of a text.
type mark struct {
	text string
	skip int
	span span
}

// newTemplate makes a template of an object, whose type is t. In JSON the items of a list
// of metadata have their type, others do not.
func newTemplate(enc encoding, obj any, t metav1.TypeMeta, marks []mark) (*template, error) {
	raw, err := rawOf(enc, obj)
	if err != nil {
		return nil, fmt.Errorf("template of %s: %w", t.Kind, err)
	}
	tmpl := &template{raw: raw}
	tmpl.frames[wholeFrame] = enc.wrap(t, len(raw))
	var itemType metav1.TypeMeta
	if t.Kind == partialObject {
		itemType = t
	}
	tmpl.frames[itemFrame] = enc.item(itemType, len(raw))
	for kind, name := range eventNames {
		tmpl.frames[eventFrame(changeKind(kind))] = enc.event(name, t, len(raw))
	}
	for _, m := range marks {
		text := []byte(m.text)
		size := len(text) - m.skip
		if size > m.span.size {
			return nil, fmt.Errorf("template of %s: %q has no room among the values", t.Kind, m.text)
		}
		for at := 0; ; {
			i := bytes.Index(raw[at:], text)
			if i < 0 {
				break
			}
			at += i
			tmpl.places = append(tmpl.places, place{at: int32(at + m.skip), value: int16(m.span.at), size: int16(size)})
			at += len(text)
		}
	}
	sort.Slice(tmpl.places, func(i, j int) bool { return tmpl.places[i].at < tmpl.places[j].at })
	for i := 1; i < len(tmpl.places); i++ {
		if p := tmpl.places[i-1]; p.at+int32(p.size) > tmpl.places[i].at {
			return nil, fmt.Errorf("template of %s: two values at byte %d", t.Kind, p.at)
		}
	}
	return tmpl, nil
}

// append appends the object with the given values, in a frame.
func (t *template) append(dst []byte, f frame, v *values) []byte {
	a := &t.frames[f]
	dst = append(dst, a.before...)
	at := len(dst)
	dst = append(dst, t.raw...)
	raw := dst[at:]
	for _, p := range t.places {
		copy(raw[p.at:p.at+int32(p.size)], v[p.value:])
	}
	return append(dst, a.after...)
}
