// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/histogram"
	"github.com/watershed-project/watershed/reflector"
)

// Stats is the memory that an informer uses, in bytes. Objects and the log are counted
// when they change, so that reading the counts does not depend on their number.
// The rest is an estimate, which tests compare with the heap.
type Stats struct {
	// Cluster and Resource identify the informer. They are [SourceOptions.Cluster] and
	// [SourceOptions.Name] if it was made with [FromSource].
	Cluster, Resource string
	// Objects is the number of objects, Packed how many of them are packed.
	Objects, Packed int
	// ObjectBytes is the size of the objects with their keys.
	ObjectBytes int64
	// KeyBytes is the size of the tree of keys, IndexBytes that of the indexes.
	KeyBytes, IndexBytes int64
	// FacetBytes is the size of the facets, without the values that objects share, and
	// UnknownFacets the number of objects that have unknown ones. Only programs of a fleet that
	// ask for facets have them.
	FacetBytes    int64
	UnknownFacets int
	// LogBytes is the memory that the window of changes for readers keeps from being
	// freed.
	LogBytes int64
	// DictionaryBytes is the size of the dictionaries for packing, or this informer's
	// part if some share a [Packing].
	DictionaryBytes int64
	// DecodedBytes is the approximate size of the values that are kept decoded. Values that only
	// readers hold are not included.
	DecodedBytes int64
	// Values counts these values and their reads.
	Values ValueStats
}

// ValueStats counts the decoded values of an informer, see [ValueOptions].
type ValueStats struct {
	// Kept is the number of values that have earned a place, KeptBytes about what they take.
	Kept, KeptBytes int64
	// Hits and Decodes are about how many reads found a value, and how many values were decoded.
	Hits, Decodes uint64
	// Lifetime is T, 0 before the first value was decoded.
	Lifetime time.Duration
}

// Bytes returns the sum of all sizes.
func (s Stats) Bytes() int64 {
	return s.ObjectBytes + s.KeyBytes + s.IndexBytes + s.FacetBytes + s.LogBytes + s.DictionaryBytes + s.DecodedBytes
}

// statsOf returns the memory use of an engine's current life, in about 200 ns.
func statsOf(e *engine.Engine) Stats {
	l := e.Current()
	snap := l.Snapshot()
	s := Stats{
		Cluster: e.Cluster(), Resource: e.Resource(), Objects: snap.Len(),
		LogBytes: l.LogStats().Bytes, DictionaryBytes: l.DictionaryBytes(),
	}
	s.ObjectBytes, s.Packed = l.Held()
	keys, indexes := snap.Size()
	s.KeyBytes, s.IndexBytes = int64(keys), int64(indexes)
	facets, unknown := l.FacetStats()
	s.FacetBytes, s.UnknownFacets = facets, int(unknown)
	v := e.Values().Stats()
	s.DecodedBytes = v.RecentBytes + v.KeptBytes
	s.Values = ValueStats{Kept: v.Kept, KeptBytes: v.KeptBytes, Hits: v.Hits, Decodes: v.Decodes, Lifetime: v.Lifetime}
	return s
}

// Report has the informers that have it in their options, while they run. The zero
// value is ready to use. All methods are safe for concurrent use.
type Report struct {
	// mu guards running.
	mu      sync.Mutex
	running map[*engine.Engine]struct{}
}

// InformerStats is the memory, the status and the work of an informer.
type InformerStats struct {
	Stats
	Status Status
	// Counts is zero if the informer is counted together with others, as those of a fleet.
	Counts Counts
}

// Counts is the work of an informer, or of several, across all runs.
type Counts struct {
	reflector.Counts
	// Delay has, for each batch of watch events, the time from the arrival of its first
	// event until the batch was stored and its readers were notified.
	Delay histogram.Snapshot
}

// Stats returns the memory use of all informers, sorted by cluster and resource.
func (r *Report) Stats() []Stats {
	running := r.sorted()
	all := make([]Stats, len(running))
	for n, e := range running {
		all[n] = statsOf(e)
	}
	return all
}

// Informers returns the memory, the status and the work of all informers, sorted by
// cluster and resource. It takes about 1 us for each, and some 100 ns for each handler.
func (r *Report) Informers() []InformerStats {
	running := r.sorted()
	all := make([]InformerStats, len(running))
	for n, e := range running {
		all[n] = InformerStats{Stats: statsOf(e), Status: statusOf(e), Counts: Counts(e.Counts())}
	}
	return all
}

// sorted returns the engines that run, sorted by cluster and resource.
func (r *Report) sorted() []*engine.Engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.running), func(a, b *engine.Engine) int {
		return cmp.Or(cmp.Compare(a.Cluster(), b.Cluster()), cmp.Compare(a.Resource(), b.Resource()))
	})
}

// add includes an informer until remove is called. It does nothing if the report is nil.
func (r *Report) add(e *engine.Engine) (remove func()) {
	if r == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[*engine.Engine]struct{}{}
	}
	r.running[e] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, e)
	}
}
