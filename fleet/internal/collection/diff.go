// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/wire"
)

// diff yields the changes that lead from one snapshot to another, sorted by cluster and
// then by key: Added, Updated and, as Missed, Deleted. It skips clusters whose state is
// the same, and reads every key of the others, at some 100 ns each.
func diff(from, to *Snapshot) iter.Seq[*Change] {
	return func(yield func(*Change) bool) {
		a, b := from.Clusters, to.Clusters
		for len(a) > 0 || len(b) > 0 {
			var cluster string
			var was, is State
			switch {
			case len(b) == 0 || len(a) > 0 && a[0].Cluster < b[0].Cluster:
				cluster, was, a = a[0].Cluster, a[0].State, a[1:]
			case len(a) == 0 || b[0].Cluster < a[0].Cluster:
				cluster, is, b = b[0].Cluster, b[0].State, b[1:]
			default:
				cluster, was, is = a[0].Cluster, a[0].State, b[0].State
				a, b = a[1:], b[1:]
			}
			if was != is && !diffCluster(cluster, was, is, to.revision, yield) {
				return
			}
		}
	}
}

// diffCluster yields the differences between two states of one cluster, which may be of
// different stores. The zero value is an empty state.
func diffCluster(cluster string, was, is State, revision uint64, yield func(*Change) bool) bool {
	next, stop := iter.Pull2(objects(was))
	defer stop()
	oldKey, old, more := next()
	emit := func(t delta.Type, key string, old, now *wire.Object) bool {
		c := Change{Type: t, Missed: t == delta.Deleted, Key: key, Revision: revision, New: Located{cluster, now}}
		if old != nil {
			c.Old = Located{cluster, old}
		}
		return yield(&c)
	}
	for key, now := range objects(is) {
		for more && oldKey < key {
			if !emit(delta.Deleted, oldKey, old, old) {
				return false
			}
			oldKey, old, more = next()
		}
		switch {
		case !more || oldKey > key:
			if !emit(delta.Added, key, nil, now) {
				return false
			}
			continue
		case old != now && !wire.Same(old, now) && !emit(delta.Updated, key, old, now):
			return false
		}
		oldKey, old, more = next()
	}
	for ; more; oldKey, old, more = next() {
		if !emit(delta.Deleted, oldKey, old, old) {
			return false
		}
	}
	return true
}

// objects yields the objects of a state in key order.
func objects(s State) iter.Seq2[string, *wire.Object] {
	if s == (State{}) {
		return func(func(string, *wire.Object) bool) {}
	}
	return s.Raw()
}
