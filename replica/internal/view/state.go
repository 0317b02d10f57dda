// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"iter"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

// State is the objects of a resource at one version, cluster by cluster.
type State struct {
	// Version is the version of the cluster or of the fleet.
	Version uint64
	// unversioned means that no client can use the version, except in a continue token.
	unversioned bool
	// Parts are sorted by the name of the cluster.
	Parts []Part
	// snapshot is the state of the fleet with all its clusters, see [Fleet.Keep].
	snapshot fleet.Snapshot[*wire.Object]
}

// ObjectKey returns the key of an object in the copy. Without a name it is the prefix of the keys of a namespace.
func ObjectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Part is the objects of one cluster.
type Part struct {
	// Cluster is the name of the cluster.
	Cluster string
	objects ranger
}

// ranger has objects by key.
type ranger interface {
	// Range yields the objects whose key begins with a prefix, after a key, in order.
	Range(prefix, after string) iter.Seq2[string, *wire.Object]
	// Candidates yields those of them that a selector can match, if they are few and can be found.
	Candidates(selector labels.Selector, prefix, after string) (objects iter.Seq2[string, *wire.Object], few bool)
}

// get returns the object with a key, nil if there is none.
func (p *Part) get(key string) *wire.Object {
	if exact, ok := p.objects.(interface {
		Get(key string) (*wire.Object, bool)
	}); ok {
		o, _ := exact.Get(key)
		return o
	}
	for found, o := range p.objects.Range(key, "") {
		if found == key {
			return o
		}
		return nil
	}
	return nil
}
