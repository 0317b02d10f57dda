// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/internal/admission"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Settings are those of all mirrors of a fleet. They do not change, but their functions may return
// other values.
type Settings struct {
	// Informer has the options of all informers. Each mirror sets those that concern it alone.
	Informer watershed.SourceOptions[*wire.Object]
	// TransformName names the TransformBytes of Informer, with its version. Without it, objects with
	// one are not stored.
	TransformName string
	// Facets has the plans for the facets of objects, nil if they have none.
	Facets *facets.Catalog
	// Trace follows changes, nil if nothing does.
	Trace Trace
	// Disk has the files, nil if nothing is stored. DiskReader reads the past of the feeds, and Loads
	// limits how many resources are loaded at once.
	Disk       *storage.Directory
	DiskReader *history.DiskReader
	Loads      *admission.LoadQueue
	// Window limits the bytes of the states that a feed keeps for slow readers.
	Window int64
	// History returns how many bytes of changes are kept for feeds, 0 if there are no feeds.
	History func() int64
	// Selection returns which resources to mirror, and Resources how many at most, less than 0 if
	// there is no limit.
	Selection func() selection.Selection
	Resources func() int
}

// Trace follows a sample of changes. See the type of that name in package fleet.
type Trace interface {
	Arrived(cluster string, r schema.GroupResource, version uint64)
	Active() bool
	Stored(cluster string, r schema.GroupResource, version uint64)
}

// stored reports a batch to the trace. It costs one call unless a change is followed.
func stored(t Trace, x *Mirror, changes []store.Change[*wire.Object]) {
	if !t.Active() {
		return
	}
	for i := range changes {
		t.Stored(x.Cluster, x.Resource.GroupResource(), changes[i].Version)
	}
}
