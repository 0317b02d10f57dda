// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/wire"
)

// Decode is [wire.Decode], but also adds the value to recent if it had to be decoded.
func Decode[T wire.Pointer[P], P any](o *wire.Object, recent *Recent) (T, error) {
	if held, ok := wire.Held[T](o); ok {
		return held, nil
	}
	value, err := wire.Decode[T](o)
	if err == nil {
		_, maps := any(value).(*unstructured.Unstructured)
		recent.add(value, decodedSize(o.Length(), maps))
	}
	return value, err
}

// Sharer lets readers share the values that a function makes from objects. Unlike
// [wire.Decode] it works for any type, also one that is not known at compile time. But a
// value is shared only while [Recent] keeps it, or until the next garbage collection.
type Sharer[T any] struct {
	// Make makes a new value from an object.
	Make func(*wire.Object) (T, error)
	// Recent keeps the values that were made last. It may be nil.
	Recent *Recent
}

// boxed is a value of any type that can be held weakly. An object has at most one that is
// alive, so a second sharer of the same type does not share its values.
type boxed[T any] struct {
	by    *Sharer[T]
	value T
}

// Held returns the value that Decode would return, if it exists already.
func (s *Sharer[T]) Held(o *wire.Object) (T, bool) {
	if box, ok := wire.Held[*boxed[T]](o); ok && box.by == s {
		return box.value, true
	}
	return *new(T), false
}

// Decode returns the value of an object, which must not be modified.
func (s *Sharer[T]) Decode(o *wire.Object) (T, error) {
	if value, ok := s.Held(o); ok {
		return value, nil
	}
	value, err := s.Make(o)
	if err != nil {
		return value, err
	}
	box := &boxed[T]{by: s, value: value}
	if first := wire.Share(o, box); first.by == s {
		box = first
	}
	s.Recent.add(box, decodedSize(o.Length(), false))
	return box.value, nil
}
