// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"slices"
	"strings"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

type (
	// informer keeps the states of one cluster's resource.
	informer = watershed.Informer[*wire.Object]
	// state is one cluster's state of a resource.
	state = watershed.Snapshot[*wire.Object]
	// change is a change in one cluster.
	change = store.Change[located]
)

// located is an object and the name of its cluster.
type located struct {
	cluster string
	object  *wire.Object
}

// clusterSet is a sorted list of names. Nil selects all clusters, an empty one none.
type clusterSet []string

// has reports whether the set selects a cluster.
func (s clusterSet) has(cluster string) bool {
	if s == nil {
		return true
	}
	_, ok := slices.BinarySearch(s, cluster)
	return ok
}

// vector is the state of all clusters, or of some, at a revision of the collection.
type vector struct {
	revision uint64
	// changed is the revision of the last change in the clusters that the reader wants.
	changed  uint64
	clusters []clusterState // by name
}

// clusterState is the state of one cluster, and the informer that it is from.
type clusterState struct {
	cluster  string
	informer *informer
	state    state
}

// Revision returns the vector's revision of the collection.
func (v *vector) Revision() uint64 { return v.revision }

// get returns an object of a vector.
func (v *vector) get(key Key) (*wire.Object, bool) {
	i, ok := slices.BinarySearchFunc(v.clusters, key.Cluster, func(c clusterState, name string) int { return strings.Compare(c.cluster, name) })
	if !ok {
		return nil, false
	}
	return v.clusters[i].state.Get(key.Object)
}

// keyOf returns the key of a changed object.
func keyOf(c *change) Key { return Key{c.New.cluster, c.Key} }
