// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"cmp"
	"iter"
	"sync/atomic"

	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Index finds objects of an informer by a value computed from them.
type Index[T any, K cmp.Ordered] struct {
	informer *Informer[T]
	values   func(*wire.Object) ([]K, error)
	current  atomic.Pointer[indexed[K]]
}

// indexed is an index in the store of one life.
type indexed[K cmp.Ordered] struct {
	store *store.Store[*wire.Object]
	index *store.Index[*wire.Object, K]
}

// Indexable is an [*Informer] or a [*Lease].
type Indexable[T any] interface {
	self() *Informer[T]
}

// IndexBy adds an index. It can be called at any time. The function returns the values
// under which an object is found: none, one or many. It is called once for each new
// state, which is decoded for it: an index of labels or names alone costs less on an
// informer of *[wire.Object]. The function must depend on the object alone, and must
// not call the informer. If it panics, the object is left out of the index.
//
// IndexBy returns when the index has all current objects. It computes their values in
// the caller's goroutine, and does not block the informer or its readers.
func IndexBy[T any, K cmp.Ordered](of Indexable[T], values func(T) []K) *Index[T, K] {
	i := of.self()
	x := &Index[T, K]{informer: i, values: func(o *wire.Object) ([]K, error) {
		value, err := i.decoder.codec.decode(o)
		if err != nil {
			i.decoder.report(o, err)
			return nil, err
		}
		return values(value), nil
	}}
	i.engine.Build((*indexPart[T, K])(x), i)
	return x
}

// indexPart is an index as a part of its informer's engine.
type indexPart[T any, K cmp.Ordered] Index[T, K]

// Join adds the index to a new life.
func (x *indexPart[T, K]) Join(l *engine.Life) {
	next := &indexed[K]{store: l.Store()}
	if was := x.current.Load(); was != nil {
		next.index = was.index.AddTo(l.Store()) // snapshots of the last life stay indexed
	} else {
		next.index = store.NewIndex(l.Store(), "index", x.values)
	}
	x.current.Store(next)
}

// Discard frees the index.
func (x *indexPart[T, K]) Discard() { x.current.Load().index.Remove() }

// Close frees the index, which must not be used afterwards.
func (x *Index[T, K]) Close() {
	part := (*indexPart[T, K])(x)
	x.informer.engine.Remove(part)
	part.Discard()
}

// Get yields the objects that have a value, in key order.
func (x *Index[T, K]) Get(value K) iter.Seq[T] {
	c := x.current.Load()
	return x.get(c, c.store.Snapshot(), value)
}

// GetIn is Get in a given snapshot, which may be of an earlier run. If the index was added
// after the snapshot was taken, all its objects are searched, with the same result.
func (x *Index[T, K]) GetIn(s Snapshot[T], value K) iter.Seq[T] {
	return x.get(x.current.Load(), s.state, value)
}

func (x *Index[T, K]) get(c *indexed[K], s *snapshot, value K) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, o := range c.index.Get(s, value) {
			if value, ok := x.informer.decoder.read(o); ok && !yield(value) {
				return
			}
		}
	}
}

// Range yields the keys and objects of a snapshot that have a value, whose keys begin with
// prefix and come after a given key, in key order. It starts there, without a search of
// the objects before: a page continues after the last key of the previous one, in this or
// an earlier snapshot.
func (x *Index[T, K]) Range(s Snapshot[T], value K, prefix, after string) iter.Seq2[string, T] {
	return s.decoded(x.current.Load().index.Range(s.state, value, prefix, after))
}

// Keys yields the keys of the objects that have a value, in order. It decodes nothing.
func (x *Index[T, K]) Keys(value K) iter.Seq[string] {
	c := x.current.Load()
	return c.index.Keys(c.store.Snapshot(), value)
}

// KeysIn is Keys in a given snapshot.
func (x *Index[T, K]) KeysIn(s Snapshot[T], value K) iter.Seq[string] {
	return x.current.Load().index.Keys(s.state, value)
}

// Values yields the distinct values of all objects, in order.
func (x *Index[T, K]) Values() iter.Seq[K] {
	c := x.current.Load()
	return c.index.Values(c.store.Snapshot())
}

// ValuesIn is Values in a given snapshot.
func (x *Index[T, K]) ValuesIn(s Snapshot[T]) iter.Seq[K] {
	return x.current.Load().index.Values(s.state)
}

// Failing returns how many objects are left out because the function panicked or they
// could not be decoded, and the last error.
func (x *Index[T, K]) Failing() (int, error) { return x.current.Load().index.Failing() }
