// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"slices"
	"strings"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

type (
	// Informer keeps the states of one cluster's resource.
	Informer = watershed.Informer[*wire.Object]
	// State is one cluster's state of a resource.
	State = watershed.Snapshot[*wire.Object]
	// Change is a change in one cluster.
	Change = store.Change[Located]
	// Log is the changes in all clusters.
	Log = fanout.Log[Located]
)

// Located is an object and the name of its cluster.
type Located struct {
	Cluster string
	Object  *wire.Object
}

// Clusters is a sorted list of names. Nil selects all clusters, an empty one none.
type Clusters []string

// Has reports whether the set selects a cluster.
func (s Clusters) Has(cluster string) bool {
	if s == nil {
		return true
	}
	_, ok := slices.BinarySearch(s, cluster)
	return ok
}

// Snapshot is the state of all clusters, or of some, at a revision of the collection. It must
// not be modified.
type Snapshot struct {
	// Changed is the revision of the last change in the clusters that the reader wants.
	Changed uint64
	// Clusters are sorted by name.
	Clusters []ClusterState
	revision uint64
}

// ClusterState is the state of one cluster, and the informer that it is from.
type ClusterState struct {
	Cluster  string
	Informer *Informer
	State    State
}

// Revision returns the snapshot's revision of the collection.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Get returns an object of a cluster.
func (s *Snapshot) Get(cluster, key string) (*wire.Object, bool) {
	i, ok := slices.BinarySearchFunc(s.Clusters, cluster, func(c ClusterState, name string) int {
		return strings.Compare(c.Cluster, name)
	})
	if !ok {
		return nil, false
	}
	return s.Clusters[i].State.Get(key)
}
