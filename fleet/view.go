// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// Key identifies an object of a fleet.
type Key struct {
	// Cluster is the name of the member.
	Cluster string
	// Object is "namespace/name", or "name" for an object without a namespace.
	Object string
}

// String returns "cluster/namespace/name" or "cluster/name".
func (k Key) String() string { return k.Cluster + "/" + k.Object }

// Compare orders keys by cluster, and within a cluster in the order in which they are
// read.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Cluster, other.Cluster), strings.Compare(k.Object, other.Object))
}

// View reads one resource of all clusters, or of some, as values of type T: a Go type
// such as *corev1.Pod, *unstructured.Unstructured, *metav1.PartialObjectMetadata, or
// *[wire.Object], which is the object as bytes. A view can be made before any cluster has
// the resource. It has a cluster's objects once the first list there is complete, or once the
// stored state is loaded, and keeps their last known state while the cluster cannot be reached. All methods are safe
// for concurrent use.
type View[T any] struct {
	fleet      *Fleet
	collection *collection.Collection
	clusters   collection.Clusters
	// interest limits which changes wake readers of Follow and Watch.
	interest fanout.Interest
	decode   func(*wire.Object) (T, error)
}

// Of returns the view of the resource of T, if T is a type of k8s.io/api.
func Of[T wire.Pointer[P], P any](f *Fleet) (*View[T], error) {
	r, _, known := kube.ResourceOf(*new(T))
	if !known {
		return nil, fmt.Errorf("view of %T: %w", *new(T), watershed.ErrNoResource)
	}
	return OfResource[T](f, r.GroupResource()), nil
}

// OfResource returns the view of any resource. Clusters may serve it in different
// versions. An object whose version cannot be decoded into T is left out, logged and
// counted.
func OfResource[T wire.Pointer[P], P any](f *Fleet, r schema.GroupResource) *View[T] {
	return &View[T]{
		fleet:      f,
		collection: f.catalog.Collection(r),
		decode:     func(o *wire.Object) (T, error) { return valuecache.Decode[T](o, f.values, false) },
	}
}

// In returns the view of some of the clusters of v. Names are resolved now, and may be
// aliases. Without names it reads nothing. The clusters need not be in the fleet.
func (v *View[T]) In(clusters ...string) *View[T] {
	some := *v
	some.clusters = make(collection.Clusters, 0, len(clusters))
	for _, name := range clusters {
		if name = v.fleet.resolve(name); v.clusters.Has(name) {
			some.clusters = append(some.clusters, name)
		}
	}
	slices.Sort(some.clusters)
	some.clusters = slices.Compact(some.clusters)
	return &some
}

// Concerning returns a view whose readers of changes are woken only by changes that an
// interest can concern: by a key or a namespace, of any cluster, and for package replica by a
// label or a field, see package internal/objectlog. It is a coarse filter: readers may receive
// other changes too and have to check them. The state that they begin with is not filtered.
func (v *View[T]) Concerning(interest fanout.Interest) *View[T] {
	some := *v
	some.interest = interest
	return &some
}

// Get returns one object.
func (v *View[T]) Get(key Key) (T, bool) {
	if state, ok := v.collection.State(key.Cluster); ok && v.clusters.Has(key.Cluster) {
		if o, ok := state.Get(key.Object); ok {
			return v.value(key.Cluster, o)
		}
	}
	return *new(T), false
}

// Snapshot returns the current state. It costs some 20 ns for each cluster.
func (v *View[T]) Snapshot() Snapshot[T] {
	return Snapshot[T]{view: v, state: v.collection.Newest(v.clusters)}
}

// Recognize returns nil if this process can have issued a revision of the view's resource,
// see [Snapshot.Revision], and otherwise [fanout.ErrExpired]: another process may have issued the
// revision, or an earlier run of this one. After ErrExpired all later revisions are greater than
// the given one, unless the given one is more than a minute ahead of the clock.
func (v *View[T]) Recognize(revision uint64) error { return v.collection.Recognize(revision) }

// Reserve returns a new revision that no state has. It is greater than all revisions before
// and less than all revisions after it.
func (v *View[T]) Reserve() uint64 { return v.collection.Reserve() }

// Changed returns the same as Snapshot().Changed(), at a lower cost.
func (v *View[T]) Changed() uint64 { return v.collection.Changed(v.clusters) }

// All returns Snapshot().All().
func (v *View[T]) All() iter.Seq2[Key, T] { return v.Snapshot().All() }

// Len returns the number of objects, including those that cannot be decoded.
func (v *View[T]) Len() int { return v.Snapshot().Len() }

// value returns the shared value of an object, and false if it cannot be decoded.
func (v *View[T]) value(cluster string, o *wire.Object) (T, bool) {
	value, err := v.try(cluster, o)
	return value, err == nil
}

// try returns the shared value of an object. A state that cannot be decoded is logged and
// counted once.
func (v *View[T]) try(cluster string, o *wire.Object) (T, error) {
	value, err := v.decode(o)
	if err != nil && v.fleet.reported.First(o) {
		v.fleet.undecodable.Add(1)
		v.fleet.settings.Logger.Error("object cannot be decoded", "cluster", cluster, "object", o.String(), "err", err)
	}
	return value, err
}

// decodes reports whether an object can be decoded.
func (v *View[T]) decodes(o *wire.Object) bool {
	_, err := v.decode(o)
	return err == nil
}

// Snapshot is the state of a view at one moment. Its part of a cluster is one state that the
// cluster had, except while a resource is listed again, see the package comment. A snapshot
// never changes. Keeping it keeps its objects in memory.
type Snapshot[T any] struct {
	view  *View[T]
	state *collection.Snapshot
}

// Revision returns the snapshot's revision. Revisions grow with every change of the
// resource in the fleet, including clusters that join and leave, also from one run of the
// program to the next. Two snapshots of a run with the same revision are equal. Revisions
// belong to this fleet: see [View.Recognize].
func (s Snapshot[T]) Revision() uint64 { return s.state.Revision() }

// Changed returns the revision of the last change in the clusters of the view, including
// those of them that have joined or left. It is not greater than Revision. For a view of
// some clusters it does not depend on the others, so a reader that may not see them learns
// nothing about them from it.
func (s Snapshot[T]) Changed() uint64 { return s.state.Changed }

// Clusters yields the clusters that have the resource and the version of each, sorted by
// name.
func (s Snapshot[T]) Clusters() iter.Seq2[string, uint64] {
	return byCluster(s, func(c *collection.ClusterState) uint64 { return c.State.Version() })
}

// Connections yields, for each cluster, the present status of the connection that delivered
// the state, sorted by the clusters' names. Heard is when the cluster last sent something.
// StaleSince is when the state ceased to be current. The status is [reflector.Idle] if the fleet
// has ended that connection and its successor has no objects yet.
func (s Snapshot[T]) Connections() iter.Seq2[string, reflector.Status] {
	return byCluster(s, func(c *collection.ClusterState) reflector.Status { return c.Informer.Connection() })
}

// States yields the state of each cluster, sorted by name.
func (s Snapshot[T]) States() iter.Seq2[string, watershed.Snapshot[*wire.Object]] {
	return byCluster(s, func(c *collection.ClusterState) collection.State { return c.State })
}

// byCluster yields a value of each cluster of a snapshot, sorted by name.
func byCluster[T, V any](s Snapshot[T], value func(*collection.ClusterState) V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for c := range s.each() {
			if !yield(c.Cluster, value(c)) {
				return
			}
		}
	}
}

// Len returns the number of objects, including those that cannot be decoded.
func (s Snapshot[T]) Len() int {
	n := 0
	for c := range s.each() {
		n += c.State.Len()
	}
	return n
}

// Get returns one object.
func (s Snapshot[T]) Get(key Key) (T, bool) {
	if o, ok := s.state.Get(key.Cluster, key.Object); ok && s.view.clusters.Has(key.Cluster) {
		return s.view.value(key.Cluster, o)
	}
	return *new(T), false
}

// All yields keys and objects, sorted by cluster and then by key.
func (s Snapshot[T]) All() iter.Seq2[Key, T] {
	return s.decoded(func(c *collection.ClusterState) iter.Seq2[string, *wire.Object] { return c.State.Raw() })
}

// Select yields the objects of a namespace that a selector matches in all clusters, sorted
// by cluster and then by key. "" means all namespaces, and a nil selector matches
// everything. In each cluster only the namespace's objects are visited and only objects
// that match are decoded: see [watershed.Snapshot.Select] for the cost.
func (s Snapshot[T]) Select(namespace string, selector labels.Selector) iter.Seq2[Key, T] {
	return s.decoded(func(c *collection.ClusterState) iter.Seq2[string, *wire.Object] {
		return c.State.Select(namespace, selector)
	})
}

// Range yields the objects whose keys in their cluster begin with prefix, and that come
// after a given key, sorted by cluster and then by key. The key may be of an earlier snapshot.
func (s Snapshot[T]) Range(prefix string, after Key) iter.Seq2[Key, T] {
	return s.after(after, func(c *collection.ClusterState, begin string) iter.Seq2[string, *wire.Object] {
		return c.State.Range(prefix, begin)
	})
}

// after yields objects of the clusters that have keys after a given one. The function
// returns those of a cluster, after a key in it.
func (s Snapshot[T]) after(
	key Key, objects func(c *collection.ClusterState, begin string) iter.Seq2[string, *wire.Object],
) iter.Seq2[Key, T] {
	return s.decoded(func(c *collection.ClusterState) iter.Seq2[string, *wire.Object] {
		switch {
		case c.Cluster < key.Cluster:
			return nothing
		case c.Cluster == key.Cluster:
			return objects(c, key.Object)
		default:
			return objects(c, "")
		}
	})
}

// nothing yields no objects.
func nothing(func(string, *wire.Object) bool) {}

// each yields the clusters of the view.
func (s Snapshot[T]) each() iter.Seq[*collection.ClusterState] {
	return func(yield func(*collection.ClusterState) bool) {
		for i := range s.state.Clusters {
			if c := &s.state.Clusters[i]; s.view.clusters.Has(c.Cluster) && !yield(c) {
				return
			}
		}
	}
}

func (s Snapshot[T]) decoded(objects func(*collection.ClusterState) iter.Seq2[string, *wire.Object]) iter.Seq2[Key, T] {
	return func(yield func(Key, T) bool) {
		for c := range s.each() {
			for key, o := range objects(c) {
				if value, ok := s.view.value(c.Cluster, o); ok && !yield(Key{c.Cluster, key}, value) {
					return
				}
			}
		}
	}
}
