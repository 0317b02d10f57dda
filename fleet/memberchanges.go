// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/storage"
)

// Changes yields the changes of all resources that are wanted between two times, in the
// order in which they arrived, from the files of the cluster. It reads them once. Old is
// known only if the object has changed before since then. An error marks a gap at this
// position, and iteration goes on, or is the last item: [history.ErrNotStored], or that of ctx.
// It waits while too many others read the past. It takes the memory of the objects that have
// changed. It is for package replica.
func (m *Member) Changes(
	ctx context.Context, since, until time.Time, want func(schema.GroupVersionResource) bool,
) iter.Seq2[history.ResourceChange, error] {
	return func(yield func(history.ResourceChange, error) bool) {
		files := m.settings.Disk.Storage()
		if files == nil {
			yield(history.ResourceChange{}, fmt.Errorf("cluster %s: %w", m.Name(), history.ErrNotStored))
			return
		}
		// The files may have changes of another cluster that had the name before.
		cluster, err := m.server.Known.Stored()
		if err != nil {
			yield(history.ResourceChange{}, fmt.Errorf("cluster %s: %w: %w", m.Name(), history.ErrNotStored, err))
			return
		}
		wanted := func(id storage.Identity) bool { return id.Cluster == cluster && want(history.ResourceOf(id)) }
		m.settings.diskReader.Changes(ctx, files.Cluster(m.Name()), since, until, wanted)(yield)
	}
}
