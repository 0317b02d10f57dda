// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import "weak"

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

// share makes p the value that all callers get, unless there already is one. It returns
// the shared value.
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

// Sharer lets readers share the values that a function makes from objects. Unlike
// [Decode] it works for any type, also one that is not known at compile time. But a value
// is shared only while [Recent] keeps it, or until the next garbage collection.
type Sharer[T any] struct {
	// Make makes a new value from an object.
	Make func(*Object) (T, error)
	// MakeLike makes a value that shares parts with the value of another state, see
	// [DecodeLike].
	MakeLike func(o, like *Object, value T) (T, error)
	// Recent keeps the values that were made last. It may be nil.
	Recent *Recent
}

// boxed is a value of any type that can be held weakly.
type boxed[T any] struct {
	by    *Sharer[T]
	value T
}

// Decode returns the value of an object, which must not be modified.
func (s *Sharer[T]) Decode(o *Object) (T, error) { return s.decode(o, s.Make) }

// DecodeLike is Decode, but a new value shares parts with the value of another state.
func (s *Sharer[T]) DecodeLike(o, like *Object, value T) (T, error) {
	return s.decode(o, func(o *Object) (T, error) { return s.MakeLike(o, like, value) })
}

// Held returns the value that Decode would return, if it exists already.
func (s *Sharer[T]) Held(o *Object) (T, bool) {
	for v := o.views.Load(); v != nil; v = v.next {
		if of, ok := v.ref.(viewOf[boxed[T]]); ok {
			if box := of.Value(); box != nil && box.by == s {
				return box.value, true
			}
		}
	}
	return *new(T), false
}

func (s *Sharer[T]) decode(o *Object, make func(*Object) (T, error)) (T, error) {
	if value, ok := s.Held(o); ok {
		return value, nil
	}
	value, err := make(o)
	if err != nil {
		return value, err
	}
	box := &boxed[T]{by: s, value: value}
	first := share(o, box)
	if first.by == s {
		box = first
	}
	s.Recent.add(box, decodedSize(o.Length(), false))
	return box.value, nil
}
