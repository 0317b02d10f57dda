// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package catchup

import (
	"cmp"
	"iter"
	"strings"

	"github.com/watershed-project/watershed/store"
)

// State is a state of all objects at a revision. Its zero value stands for no state.
type State interface {
	comparable
	Revision() uint64
}

// Key identifies an object of a state.
type Key struct {
	// Cluster is "" where all objects are of one cluster.
	Cluster string
	Object  string
}

// Compare orders keys by cluster, and within a cluster by object.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Cluster, other.Cluster), strings.Compare(k.Object, other.Object))
}

// Objects is access to the objects T of states S. The zero value of T stands for no
// object.
type Objects[S State, T comparable] interface {
	// Key returns the key of a change's object.
	Key(c *store.Change[T]) Key
	// Get returns an object of a state, the zero value if the state does not have it.
	Get(s S, key Key) T
	// Same reports whether two objects are the same version of one object.
	Same(a, b T) bool
	// Diff yields the changes that lead from one state to another, in the order of keys:
	// Added, Updated and, as Missed, Deleted.
	Diff(from, to S) iter.Seq[*store.Change[T]]
}
