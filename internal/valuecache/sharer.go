// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/internal/views"
	"github.com/watershed-project/watershed/wire"
)

// Decode is [wire.Decode], but also keeps the value as one of the latest if it had to be decoded.
// Reads is true for a reader, whose reads earn a value its place, and false for functions of the
// program that see every object, such as indexes and handlers.
func Decode[T wire.Pointer[P], P any](o *wire.Object, c *Cache, reads bool) (T, error) {
	if self, ok := any(o).(T); ok {
		return self, nil
	}
	if p := find[P](o, c, reads); p != nil {
		return p, nil
	}
	began := time.Now()
	value, err := wire.DecodeFresh[T](o)
	if err != nil {
		return nil, err
	}
	return share(o, c, (*P)(value), time.Since(began), reads), nil
}

// find returns the value of an object, nil if there is none.
func find[P any](o *wire.Object, c *Cache, reads bool) *P {
	v := views.Find[P](o.Views())
	if v == nil {
		return nil
	}
	p := v.Kept()
	kept := p != nil
	if !kept {
		p = v.Value()
	}
	if p == nil || !reads || c == nil {
		return p
	}
	if rand.Uint32()%hitSample == 0 {
		c.hits.Add(hitSample)
	}
	if !kept {
		read(c, v, p, decodedSize(o, p))
	} else if epoch := c.epoch.Load(); v.Read.Load() != epoch {
		v.Read.Store(epoch)
	}
	return p
}

// share makes a new value the one of its object, unless it has one, and adds it to the cache.
func share[P any](o *wire.Object, c *Cache, p *P, took time.Duration, reads bool) *P {
	p, v := views.Share(o.Views(), p)
	size := decodedSize(o, p)
	c.decoded(p, size, took)
	if reads {
		read(c, v, p, size)
	}
	return p
}

// decodedSize estimates the size of the value that an object was decoded into. Measured on
// pods, Go types take 3.3 times their protobuf and maps 6 times their JSON.
func decodedSize(o *wire.Object, value any) int {
	if box, ok := value.(interface{ content() any }); ok {
		value = box.content()
	}
	n := o.Length()
	if _, maps := value.(*unstructured.Unstructured); maps {
		return 512 + 6*n
	}
	return 512 + 13*n/4
}

// Sharer lets readers share the values that a function makes from objects. Unlike
// [wire.Decode] it works for any type, also one that is not known at compile time. But a
// value is shared only while the [Cache] keeps it, or until the next garbage collection.
type Sharer[T any] struct {
	// Make makes a new value from an object.
	Make func(*wire.Object) (T, error)
	// Cache keeps values. It may be nil.
	Cache *Cache
}

// boxed is a value of any type that can be held weakly. An object has at most one that is
// alive, so a second sharer of the same type does not share its values.
type boxed[T any] struct {
	by    *Sharer[T]
	value T
}

func (b *boxed[T]) content() any { return b.value }

// Held returns the value that Decode would return, if it exists already.
func (s *Sharer[T]) Held(o *wire.Object) (T, bool) {
	if box := find[boxed[T]](o, s.Cache, false); box != nil && box.by == s {
		return box.value, true
	}
	return *new(T), false
}

// Decode returns the value of an object, which must not be modified.
func (s *Sharer[T]) Decode(o *wire.Object) (T, error) { return s.decode(o, false) }

// Read is Decode for a reader, whose reads earn a value its place.
func (s *Sharer[T]) Read(o *wire.Object) (T, error) { return s.decode(o, true) }

func (s *Sharer[T]) decode(o *wire.Object, reads bool) (T, error) {
	if box := find[boxed[T]](o, s.Cache, reads); box != nil && box.by == s {
		return box.value, nil
	}
	began := time.Now()
	value, err := s.Make(o)
	if err != nil {
		return value, err
	}
	if box := share(o, s.Cache, &boxed[T]{by: s, value: value}, time.Since(began), reads); box.by == s {
		return box.value, nil
	}
	return value, nil
}
