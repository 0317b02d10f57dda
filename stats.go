// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"cmp"
	"slices"
	"sync"
)

// Stats is what an informer keeps, in bytes. Objects and the log are counted,
// the rest is an estimate that tests hold to what the heap says.
type Stats struct {
	// Cluster and Resource say whose. An informer that was made from a source has
	// no cluster, and its name for a resource.
	Cluster, Resource string
	// Objects is how many there are, Packed how many of them are packed.
	Objects, Packed int
	// ObjectBytes are the objects with their keys.
	ObjectBytes int64
	// KeyBytes is what finds them by key, IndexBytes by index.
	KeyBytes, IndexBytes int64
	// LogBytes is the window of changes kept for readers: what it keeps from being
	// freed.
	LogBytes int64
	// DictionaryBytes is what objects are packed with, or this informer's part of it
	// where some share a [Packing].
	DictionaryBytes int64
	// DecodedBytes is about what the values take that were decoded lately. What
	// readers hold on to is theirs.
	DecodedBytes int64
}

// Bytes is the sum.
func (s Stats) Bytes() int64 {
	return s.ObjectBytes + s.KeyBytes + s.IndexBytes + s.LogBytes + s.DictionaryBytes + s.DecodedBytes
}

// Stats counts what the informer keeps. It looks at every object, some 50 ns each.
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

// Report knows the informers that it was given to in their options, while they
// run. The zero value is ready; all methods are safe for concurrent use.
type Report struct {
	// mu guards running.
	mu      sync.Mutex
	running map[*engine]struct{}
}

// Stats are those of all informers, by cluster and resource.
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

// add and remove do nothing on nil.
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
