// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// Stats is the memory that an informer uses, in bytes. Objects and the log are counted.
// The rest is an estimate, which tests compare with the heap.
type Stats struct {
	// Cluster and Resource identify the informer. They are [Options.Cluster] and
	// [Options.Name] if it was made with [FromSource].
	Cluster, Resource string
	// Objects is the number of objects, Packed how many of them are packed.
	Objects, Packed int
	// ObjectBytes is the size of the objects with their keys.
	ObjectBytes int64
	// KeyBytes is the size of the tree of keys, IndexBytes that of the indexes.
	KeyBytes, IndexBytes int64
	// LogBytes is the memory that the window of changes for readers keeps from being
	// freed.
	LogBytes int64
	// DictionaryBytes is the size of the dictionaries for packing, or this informer's
	// part if some share a [Packing].
	DictionaryBytes int64
	// DecodedBytes is the approximate size of recently decoded values. Values that only
	// readers hold are not included.
	DecodedBytes int64
}

// Bytes returns the sum of all sizes.
func (s Stats) Bytes() int64 {
	return s.ObjectBytes + s.KeyBytes + s.IndexBytes + s.LogBytes + s.DictionaryBytes + s.DecodedBytes
}

// Report has the informers that have it in their options, while they run. The zero
// value is ready to use. All methods are safe for concurrent use.
type Report struct {
	// mu guards running, which has a function for each informer.
	mu      sync.Mutex
	running map[*func() Stats]struct{}
}

// Stats returns the memory use of all informers, sorted by cluster and resource.
func (r *Report) Stats() []Stats {
	r.mu.Lock()
	running := slices.Collect(maps.Keys(r.running))
	r.mu.Unlock()
	all := make([]Stats, len(running))
	for n, stats := range running {
		all[n] = (*stats)()
	}
	slices.SortFunc(all, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

// add includes the stats of an informer until remove is called. It does nothing if the
// report is nil.
func (r *Report) add(stats func() Stats) (remove func()) {
	if r == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[*func() Stats]struct{}{}
	}
	r.running[&stats] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, &stats)
	}
}
