// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"errors"
	"log/slog"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/internal/undecodable"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/wire"
)

// Codec decodes and encodes the values of an informer. It is for types that are not
// known at compile time, or that [wire.Decode] cannot decode as needed.
type Codec[T any] struct {
	// Decode returns a new value for an object. Readers share it.
	Decode func(*wire.Object) (T, error)
	// DecodeLike, if it is not nil, returns a value for the old state of a change, given
	// the value of the new state. Both values may share equal parts: see
	// [wire.Object.DecodeIntoLike]. Only handlers of that change get the old value.
	DecodeLike func(o, like *wire.Object, value T) (T, error)
	// Encode returns an object for a value that Transform returned for like. Only
	// [Options.Transform] needs it.
	Encode func(value T, like *wire.Object) (*wire.Object, error)
}

// codec decodes and encodes the values of an informer.
type codec[T any] struct {
	// decode and read return the shared value of an object, fresh a new one. Decode is for
	// handlers and indexes, which see every object once, read for readers: see [valuecache.Decode].
	decode, read, fresh func(*wire.Object) (T, error)
	// held returns the value that decode would return without decoding. like is fresh
	// given the value of another state, with which the new value shares parts.
	held   func(*wire.Object) (T, bool)
	like   func(o, like *wire.Object, value T) (T, error)
	encode func(value T, like *wire.Object) (*wire.Object, error)
	// raw means that T is *wire.Object and nothing is decoded.
	raw bool
	// values keeps the values that were decoded.
	values *valuecache.Cache
}

func newCodec[T wire.Pointer[P], P any](values *valuecache.Cache) codec[T] {
	_, raw := any(T(nil)).(*wire.Object)
	if raw {
		values = nil // nothing is decoded
	}
	return codec[T]{
		decode: func(o *wire.Object) (T, error) { return valuecache.Decode[T](o, values, false) },
		read:   func(o *wire.Object) (T, error) { return valuecache.Decode[T](o, values, true) },
		fresh:  wire.DecodeFresh[T, P],
		held:   wire.Held[T, P],
		like: func(o, like *wire.Object, value T) (T, error) {
			if raw {
				return any(o).(T), nil
			}
			into := T(new(P))
			return into, o.DecodeIntoLike(into, like, value)
		},
		encode: func(value T, like *wire.Object) (*wire.Object, error) {
			return wire.Encode(value, like.Encoding(), like.Kind())
		},
		raw:    raw,
		values: values,
	}
}

// codec returns a codec that shares the values of the user's.
func (c Codec[T]) codec(values *valuecache.Cache) codec[T] {
	if c.DecodeLike == nil {
		c.DecodeLike = func(o, _ *wire.Object, _ T) (T, error) { return c.Decode(o) }
	}
	shared := &valuecache.Sharer[T]{Make: c.Decode, Cache: values}
	return codec[T]{
		decode: shared.Decode, read: shared.Read, fresh: c.Decode, held: shared.Held, like: c.DecodeLike,
		encode: c.Encode, values: values,
	}
}

// transform turns a transform of values into one of objects.
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

// wants returns how to request objects from which T can be decoded.
func wants[T any]() (metadataOnly, json bool) {
	switch any(*new(T)).(type) {
	case *metav1.PartialObjectMetadata:
		return true, false
	case *unstructured.Unstructured:
		// Protobuf would have to be decoded through a Go type, and lose the fields that
		// a newer server has and the type does not.
		return false, true
	default:
		return false, false
	}
}

// decoder decodes the objects of an informer, and reports those that cannot be decoded.
type decoder[T any] struct {
	codec  codec[T]
	logger *slog.Logger
	// reported has the states that could not be decoded.
	reported undecodable.Log
	// failures counts such states for all informers of an engine.
	failures *atomic.Uint64
}

// decode returns the shared value of an object, and false if it cannot be decoded.
func (d *decoder[T]) decode(o *wire.Object) (T, bool) { return d.decoded(o)(d.codec.decode(o)) }

// read is decode for a reader.
func (d *decoder[T]) read(o *wire.Object) (T, bool) { return d.decoded(o)(d.codec.read(o)) }

// decodes reports whether an object can be decoded.
func (d *decoder[T]) decodes(o *wire.Object) bool {
	_, ok := d.decode(o)
	return ok
}

// decoded returns a function that reports a failed decoding of an object.
func (d *decoder[T]) decoded(o *wire.Object) func(T, error) (T, bool) {
	return func(value T, err error) (T, bool) {
		d.report(o, err)
		return value, err == nil
	}
}

// report logs and counts a state that cannot be decoded, once per state.
func (d *decoder[T]) report(o *wire.Object, err error) {
	if err != nil && d.reported.First(o) {
		d.failures.Add(1)
		d.logger.Error("object cannot be decoded", "object", o.String(), "err", err)
	}
}
