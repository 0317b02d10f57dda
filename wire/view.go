// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"sync/atomic"
	"weak"
)

// view is one of the values that an object was decoded into. Views never change; a chain
// of them is replaced as a whole.
type view struct {
	ref  viewRef
	next *view
}

// viewRef is a viewOf of any type.
type viewRef interface{ dead() bool }

// viewOf holds a value without keeping it alive.
type viewOf[P any] struct{ weak.Pointer[P] }

func (v viewOf[P]) dead() bool { return v.Value() == nil }

// shared returns the value of type P that a caller still holds, nil if there is none.
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

// share makes p the value that all callers get from an object with these views, unless
// there already is one. It returns the shared value.
func share[P any](views *atomic.Pointer[view], p *P) *P {
	ref := viewOf[P]{weak.Make(p)}
	for {
		old := views.Load()
		if first := shared[P](old); first != nil {
			return first
		}
		chain := &view{ref: ref}
		for v := old; v != nil; v = v.next {
			if !v.ref.dead() {
				chain.next = &view{ref: v.ref, next: chain.next}
			}
		}
		if views.CompareAndSwap(old, chain) {
			return p
		}
	}
}
