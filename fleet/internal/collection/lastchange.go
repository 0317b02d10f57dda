// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

// maxLeft limits how many clusters without a part a collection remembers, at some 60 bytes
// each.
const maxLeft = 1024

// lastChanges has the revision of the last change of each cluster of a collection, whose mu
// guards it. A change is one of an object, or that the cluster's part joined, was replaced
// or left.
type lastChanges struct {
	// floor is not less than the revision of any cluster that is not in revisions.
	floor     uint64
	revisions map[string]uint64
}

// set records a change of a cluster.
func (l *lastChanges) set(cluster string, revision uint64, parts []*clusterPart) {
	if l.revisions == nil {
		l.revisions = map[string]uint64{}
	}
	l.revisions[cluster] = revision
	if len(l.revisions) <= len(parts)+maxLeft {
		return
	}
	for name, left := range l.revisions {
		if p, _ := find(parts, name); p == nil {
			l.floor = max(l.floor, left)
			delete(l.revisions, name)
		}
	}
}

// of returns the revision of the last change in some clusters.
func (l *lastChanges) of(clusters Clusters) uint64 {
	last := l.floor
	for _, name := range clusters {
		last = max(last, l.revisions[name])
	}
	return last
}
