// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import "weak"

// view is one of the values an object was decoded into. Views never change; a
// chain of them is replaced as a whole.
type view struct {
	ref  viewRef
	next *view
}

// viewRef is a viewOf any type.
type viewRef interface{ dead() bool }

// viewOf holds a value without keeping it alive.
type viewOf[P any] struct{ weak.Pointer[P] }

func (v viewOf[P]) dead() bool { return v.Value() == nil }

// shared is the value of type P that somebody holds, nil if nobody does.
func shared[P any](v *view) *P {
	for ; v != nil; v = v.next {
		if of, ok := v.ref.(viewOf[P]); ok {
			if p := of.Value(); p != nil {
				return p
			}
		}
	}
	return nil
}

// share makes p the value that everybody gets, unless another one already is.
func share[P any](o *Object, p *P) *P {
	ref := viewOf[P]{weak.Make(p)}
	for {
		old := o.views.Load()
		if first := shared[P](old); first != nil {
			return first
		}
		views := &view{ref: ref}
		for v := old; v != nil; v = v.next {
			if !v.ref.dead() {
				views.next = &view{ref: v.ref, next: views.next}
			}
		}
		if o.views.CompareAndSwap(old, views) {
			return p
		}
	}
}
