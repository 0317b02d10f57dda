// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/wire"
)

// Codec is how an informer makes values of objects, for types that are not known
// when the program is compiled, or that are made otherwise than [wire.Decode] does.
type Codec[T any] struct {
	// Decode makes a new value of an object. The informer lets readers share it.
	Decode func(*wire.Object) (T, error)
	// DecodeLike, if it is not nil, does the same beside the value of another state
	// of the object, with which the new one may share what is the same: see
	// [wire.Object.DecodeIntoLike].
	DecodeLike func(o, like *wire.Object, value T) (T, error)
	// Encode makes an object of a value that Transform returned for like. It is
	// needed with [Options.Transform] only.
	Encode func(value T, like *wire.Object) (*wire.Object, error)
}

// codec is what an informer knows of its type.
type codec[T any] struct {
	// decode gives the shared value of an object, fresh one of its own.
	decode, fresh func(*wire.Object) (T, error)
	// held is what decode would return without decoding. Like is decode beside
	// another state that is decoded, and freshLike the same without sharing it.
	held      func(*wire.Object) (T, bool)
	freshLike func(o, like *wire.Object, value T) (T, error)
	like      func(o, like *wire.Object, value T) (T, error)
	encode    func(value T, like *wire.Object) (*wire.Object, error)
	// raw: T is *wire.Object and decoding is nothing.
	raw bool
	// recent keeps what decode returned last.
	recent *wire.Recent
}

func newCodec[T wire.Pointer[P], P any](recent *wire.Recent) codec[T] {
	_, raw := any(T(nil)).(*wire.Object)
	return codec[T]{
		decode: func(o *wire.Object) (T, error) { return wire.DecodeRecent[T](o, recent) },
		fresh:  wire.DecodeFresh[T, P],
		held:   wire.Held[T, P],
		freshLike: func(o, like *wire.Object, value T) (T, error) {
			if raw {
				return any(o).(T), nil
			}
			into := T(new(P))
			return into, o.DecodeIntoLike(into, like, value)
		},
		like: func(o, like *wire.Object, value T) (T, error) {
			return wire.DecodeLike[T](o, recent, like, value)
		},
		encode: func(value T, like *wire.Object) (*wire.Object, error) {
			return wire.Encode(value, like.Encoding(), like.Kind())
		},
		raw:    raw,
		recent: recent,
	}
}

// codec is the user's, with sharing.
func (c Codec[T]) codec(recent *wire.Recent) codec[T] {
	if c.DecodeLike == nil {
		c.DecodeLike = func(o, _ *wire.Object, _ T) (T, error) { return c.Decode(o) }
	}
	shared := &wire.Sharer[T]{Make: c.Decode, MakeLike: c.DecodeLike, Recent: recent}
	return codec[T]{
		decode: shared.Decode, fresh: c.Decode, held: shared.Held, like: shared.DecodeLike, freshLike: c.DecodeLike,
		encode: c.Encode, recent: recent,
	}
}

// transform is a user's transform as one of objects.
func (c codec[T]) transform(f func(T) (T, error)) func(*wire.Object) (*wire.Object, error) {
	if f == nil {
		return nil
	}
	return func(o *wire.Object) (*wire.Object, error) {
		value, err := c.fresh(o)
		if err != nil {
			return nil, err
		}
		if value, err = f(value); err != nil {
			return nil, err
		}
		if out, ok := any(value).(*wire.Object); ok {
			return out, nil
		}
		if c.encode == nil {
			return nil, errors.New("transform: the codec has no Encode")
		}
		return c.encode(value, o)
	}
}

// wants says what to ask a server for so that T can be made of it.
func wants[T any]() (metadataOnly, json bool) {
	switch any(*new(T)).(type) {
	case *metav1.PartialObjectMetadata:
		return true, false
	case *unstructured.Unstructured:
		// Protobuf would have to pass through a Go type, and lose the fields
		// that a newer server has and that type has not.
		return false, true
	default:
		return false, false
	}
}
