// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/wire"
)

// Index finds objects of a view by a value computed from them, in all clusters, including
// those that join later. It costs about 120 bytes for each value of an object. A lookup
// searches each cluster, at some 0.5 us.
type Index[T any, K cmp.Ordered] struct {
	view   *View[T]
	values func(*wire.Object) []K
	// of are the indexes of the informers. The map is replaced, not modified, with the
	// collection's mu held.
	of atomic.Pointer[map[*collection.Informer]*watershed.Index[*wire.Object, K]]
}

// IndexBy adds an index, at any time. The function returns the values to find an object
// by, none or many. It is called once for each new state, which is decoded for the call:
// an index that reads only labels or names costs less on a view of *[wire.Object]. It
// must depend on the object alone. If it panics, the object is left out of the index.
func IndexBy[T any, K cmp.Ordered](v *View[T], values func(T) []K) *Index[T, K] {
	x := &Index[T, K]{view: v, values: func(o *wire.Object) []K {
		value, err := v.decode(o)
		if err != nil {
			return nil
		}
		return values(value)
	}}
	x.of.Store(&map[*collection.Informer]*watershed.Index[*wire.Object, K]{})
	// Indexing the existing objects takes time, so others can write meanwhile.
	for i, cluster := range v.collection.AddIndex(member[T, K]{x}) {
		if v.clusters.Has(cluster) {
			x.keep(i, watershed.IndexBy(i, x.values))
		}
	}
	return x
}

// keep stores the index of an informer, unless the informer has ended meanwhile.
func (x *Index[T, K]) keep(i *collection.Informer, index *watershed.Index[*wire.Object, K]) {
	x.view.collection.Indexed(i, func() {
		x.replace(func(of map[*collection.Informer]*watershed.Index[*wire.Object, K]) { of[i] = index })
	})
}

// Close frees the index, which must not be used after that.
func (x *Index[T, K]) Close() {
	x.view.collection.RemoveIndex(member[T, K]{x})
	for _, index := range *x.of.Load() {
		index.Close()
	}
}

// member is an index as the collection has it.
type member[T any, K cmp.Ordered] struct{ *Index[T, K] }

// Join adds an index to an informer that has no objects yet. The collection's mu is held.
func (x member[T, K]) Join(cluster string, i *collection.Informer) {
	if x.view.clusters.Has(cluster) {
		index := watershed.IndexBy(i, x.values)
		x.replace(func(of map[*collection.Informer]*watershed.Index[*wire.Object, K]) { of[i] = index })
	}
}

// Leave removes the index of an informer that ends. The collection's mu is held.
func (x member[T, K]) Leave(i *collection.Informer) {
	x.replace(func(of map[*collection.Informer]*watershed.Index[*wire.Object, K]) { delete(of, i) })
}

func (x *Index[T, K]) replace(edit func(map[*collection.Informer]*watershed.Index[*wire.Object, K])) {
	next := maps.Clone(*x.of.Load())
	edit(next)
	x.of.Store(&next)
}

// Get yields the objects that have a value, sorted by cluster and then by key.
func (x *Index[T, K]) Get(value K) iter.Seq2[Key, T] { return x.GetIn(x.view.Snapshot(), value) }

// GetIn is Get in a snapshot.
func (x *Index[T, K]) GetIn(s Snapshot[T], value K) iter.Seq2[Key, T] {
	return x.Range(s, value, "", Key{})
}

// Range is GetIn for the objects whose keys in their cluster begin with prefix, and that
// come after a given key. It starts there, without a search of the objects before: a page
// continues after the last key of the previous one, in this or an earlier snapshot.
func (x *Index[T, K]) Range(s Snapshot[T], value K, prefix string, after Key) iter.Seq2[Key, T] {
	return s.after(after, func(c *collection.ClusterState, begin string) iter.Seq2[string, *wire.Object] {
		if !x.view.clusters.Has(c.Cluster) {
			return nothing
		}
		return x.find(c, value, prefix, begin)
	})
}

// find returns the objects of one cluster that have a value. If the cluster's informer
// has ended since the snapshot, it has no index any more, and find checks every object.
func (x *Index[T, K]) find(c *collection.ClusterState, value K, prefix, after string) iter.Seq2[string, *wire.Object] {
	if index := (*x.of.Load())[c.Informer]; index != nil {
		return index.Range(c.State, value, prefix, after)
	}
	return func(yield func(string, *wire.Object) bool) {
		for key, o := range c.State.Range(prefix, after) {
			if slices.Contains(x.evaluate(o), value) && !yield(key, o) {
				return
			}
		}
	}
}

// evaluate calls the user's function, which may panic.
func (x *Index[T, K]) evaluate(o *wire.Object) (values []K) {
	defer func() {
		if recover() != nil {
			values = nil
		}
	}()
	return x.values(o)
}
