// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"strings"
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
