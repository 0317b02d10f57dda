// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/disk"
)

// ResourceChange is a change of a resource that was read from files.
type ResourceChange struct {
	Resource schema.GroupVersionResource
	PastChange
}

// Changes yields the changes of all resources that are wanted between two times, in the
// order in which they arrived, from the files of the cluster. It reads them once. Old is
// known only if the object has changed before since then. An error means that changes are
// missing there, or is the last one: [ErrNotStored], or that of ctx. It waits while too many
// others read the past. It takes the memory of the objects that have changed.
func (m *Member) Changes(ctx context.Context, since, until time.Time, want func(schema.GroupVersionResource) bool) iter.Seq2[ResourceChange, error] {
	return func(yield func(ResourceChange, error) bool) {
		files := m.settings.Disk
		if files == nil {
			yield(ResourceChange{}, fmt.Errorf("cluster %s: %w", m.name, ErrNotStored))
			return
		}
		// The files may have changes of another cluster that had the name before.
		cluster, err := m.known.stored()
		if err != nil {
			yield(ResourceChange{}, fmt.Errorf("cluster %s: %w: %w", m.name, ErrNotStored, err))
			return
		}
		all := map[disk.Identity]*pastObjects{}
		wanted := func(id disk.Identity) bool { return id.Cluster == cluster && want(resourceOf(id)) }
		for entry, err := range m.settings.archive.entries(ctx, files.Cluster(m.name), since, until, wanted) {
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
				if !yield(ResourceChange{resourceOf(entry.Identity), last.change(&entry, &entry.Changes[i])}, nil) {
					return
				}
			}
		}
	}
}

func resourceOf(id disk.Identity) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: id.Group, Version: id.Version, Resource: id.Resource}
}
