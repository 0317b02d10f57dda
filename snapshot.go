// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/wire"
)

// Snapshot is the state of an informer at a moment. It never changes; keeping it
// keeps its objects. Objects that cannot be decoded into T are left out, logged and
// counted in [Status.Undecodable].
type Snapshot[T any] struct {
	informer *Informer[T]
	state    *snapshot
}

// Version is the server's version that the state has.
func (s Snapshot[T]) Version() uint64 { return s.state.Version() }

// Era counts how often the server has gone back to an older version, as it does when
// etcd is restored from a backup. Versions of different eras cannot be compared.
func (s Snapshot[T]) Era() uint64 { return s.state.Era() }

// Revision counts the changes of the informer's run: of two snapshots of a run with
// the same one, either will do.
func (s Snapshot[T]) Revision() uint64 { return s.state.Revision() }

// Len is the number of objects, including those that cannot be decoded.
func (s Snapshot[T]) Len() int { return s.state.Len() }

// Get returns the object with a key, "namespace/name" or "name".
func (s Snapshot[T]) Get(key string) (T, bool) {
	o, ok := s.state.Get(key)
	if !ok {
		return *new(T), false
	}
	return s.informer.decode(o)
}

// GetRaw returns the object with a key as bytes.
func (s Snapshot[T]) GetRaw(key string) (*wire.Object, bool) { return s.state.Get(key) }

// All yields keys and objects in key order.
func (s Snapshot[T]) All() iter.Seq2[string, T] { return s.decoded(s.state.All()) }

// Namespace yields the objects of a namespace in key order. "" is
// [metav1.NamespaceAll]: all objects.
func (s Snapshot[T]) Namespace(namespace string) iter.Seq2[string, T] {
	if namespace == metav1.NamespaceAll {
		return s.All()
	}
	return s.decoded(s.state.Prefix(namespace + "/"))
}

// After yields the objects after a key in key order, for reading on where a walk
// of this or an earlier snapshot was left.
func (s Snapshot[T]) After(key string) iter.Seq2[string, T] {
	return s.decoded(s.state.Range("", key))
}

// Range yields the objects whose keys begin with prefix, in key order, from the first
// key after a given one.
func (s Snapshot[T]) Range(prefix, after string) iter.Seq2[string, T] {
	return s.decoded(s.state.Range(prefix, after))
}

// Matching yields the objects that a selector matches, in key order. Labels are
// read from the bytes: what does not match is not decoded.
func (s Snapshot[T]) Matching(selector labels.Selector) iter.Seq2[string, T] {
	return s.decoded(func(yield func(string, *wire.Object) bool) {
		for key, o := range s.state.All() {
			if selector.Matches(o.Labels()) && !yield(key, o) {
				return
			}
		}
	})
}

// Raw yields keys and objects as bytes.
func (s Snapshot[T]) Raw() iter.Seq2[string, *wire.Object] { return s.state.All() }

func (s Snapshot[T]) decoded(objects iter.Seq2[string, *wire.Object]) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for key, o := range objects {
			if value, ok := s.informer.decode(o); ok && !yield(key, value) {
				return
			}
		}
	}
}
