// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

// Sharer lets readers share the values that a function makes from objects. Unlike
// [Decode] it works for any type, also one that is not known at compile time. But a value
// is shared only while [Recent] keeps it, or until the next garbage collection.
type Sharer[T any] struct {
	// Make makes a new value from an object.
	Make func(*Object) (T, error)
	// Recent keeps the values that were made last. It may be nil.
	Recent *Recent
}

// boxed is a value of any type that can be held weakly.
type boxed[T any] struct {
	by    *Sharer[T]
	value T
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

// Decode returns the value of an object, which must not be modified.
func (s *Sharer[T]) Decode(o *Object) (T, error) {
	if value, ok := s.Held(o); ok {
		return value, nil
	}
	value, err := s.Make(o)
	if err != nil {
		return value, err
	}
	box := &boxed[T]{by: s, value: value}
	first := share(&o.views, box)
	if first.by == s {
		box = first
	}
	s.Recent.add(box, decodedSize(o.Length(), false))
	return box.value, nil
}
