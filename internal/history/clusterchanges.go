// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"context"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/storage"
)

// ResourceChange is a change of a resource that was read from files.
type ResourceChange struct {
	Resource schema.GroupVersionResource
	PastChange
}

// Changes yields the changes of all resources that are wanted between two times, in the
// order in which they arrived, from the files of a cluster. It reads them once. Old is
// nil for the first change of an object in that time. An error marks a gap at this
// position, and iteration goes on; the error of ctx is the last item. It waits while too many
// others read the past. It takes the memory of the objects that have changed.
func (d *DiskReader) Changes(
	ctx context.Context, files *storage.Cluster, since, until time.Time, want func(storage.Identity) bool,
) iter.Seq2[ResourceChange, error] {
	return func(yield func(ResourceChange, error) bool) {
		all := map[storage.Identity]*pastObjects{}
		for entry, err := range d.entries(ctx, files, since, until, want) {
			if err != nil {
				clear(all)
				if !yield(ResourceChange{}, err) {
					return
				}
				continue
			}
			last := all[entry.Identity]
			if last == nil {
				last = &pastObjects{}
				all[entry.Identity] = last
			}
			for i := range entry.Changes {
				change := ResourceChange{ResourceOf(entry.Identity), last.change(&entry, &entry.Changes[i])}
				if !yield(change, nil) {
					return
				}
			}
		}
	}
}

// ResourceOf returns the resource whose objects have an identity in the files.
func ResourceOf(id storage.Identity) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: id.Group, Version: id.Version, Resource: id.Resource}
}
