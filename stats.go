// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"cmp"
	"slices"
	"sync"
)

// Stats is the memory that an informer uses, in bytes. Objects and the log are counted.
// The rest is an estimate, which tests compare with the heap.
type Stats struct {
	// Cluster and Resource identify the informer. They are [Options.Cluster] and
	// [Options.Name] if it was made from a source.
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

// Stats returns the informer's memory use. It visits every object, at some 50 ns each.
func (i *Informer[T]) Stats() Stats { return i.engine.stats() }

func (e *engine) stats() Stats {
	l := e.current.Load()
	snap := l.store.Snapshot()
	s := Stats{Cluster: e.cluster, Resource: e.resource, Objects: snap.Len(), LogBytes: l.log.Stats().Bytes}
	for _, o := range snap.All() {
		s.ObjectBytes += int64(o.Size())
		if o.Packed() {
			s.Packed++
		}
	}
	keys, indexes := snap.Size()
	s.KeyBytes, s.IndexBytes = int64(keys), int64(indexes)
	if l.packing != nil {
		_, dictionaries := l.packing.packer.Dictionaries()
		s.DictionaryBytes = int64(dictionaries) / max(l.packing.shared.users.Load(), 1)
	}
	_, decoded := e.opts.recent.Size()
	s.DecodedBytes = int64(decoded)
	return s
}

// Report has the informers that have it in their options, while they run. The zero
// value is ready to use. All methods are safe for concurrent use.
type Report struct {
	// mu guards running.
	mu      sync.Mutex
	running map[*engine]struct{}
}

// Stats returns the memory use of all informers, sorted by cluster and resource.
func (r *Report) Stats() []Stats {
	r.mu.Lock()
	engines := make([]*engine, 0, len(r.running))
	for e := range r.running {
		engines = append(engines, e)
	}
	r.mu.Unlock()
	all := make([]Stats, len(engines))
	for n, e := range engines {
		all[n] = e.stats()
	}
	slices.SortFunc(all, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

// add and remove do nothing if the report is nil.
func (r *Report) add(e *engine) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[*engine]struct{}{}
	}
	r.running[e] = struct{}{}
}

func (r *Report) remove(e *engine) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, e)
}
