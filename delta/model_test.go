// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta_test

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/watershed-project/watershed/delta"
)

// pod is the plain struct that the tests send through the queue.
type pod struct {
	Name  string
	Value int
}

func podKey(p pod) string        { return p.Name }
func podVersion(p pod) uint64    { return uint64(p.Value) }
func podOf(n int, value int) pod { return pod{Name: "pod" + string(rune('a'+n)), Value: value} }

// known is a [delta.Known] that is a plain map.
type known map[string]pod

func (k known) Get(key string) (pod, bool) {
	p, ok := k[key]
	return p, ok
}

func (k known) All() iter.Seq2[string, pod] {
	return func(yield func(string, pod) bool) {
		for _, key := range slices.Sorted(maps.Keys(k)) {
			if !yield(key, k[key]) {
				return
			}
		}
	}
}

// apply applies deltas like a consumer that keeps a store.
func (k known) apply(ds delta.Deltas[pod]) {
	for _, d := range ds {
		switch d.Type {
		case delta.Bookmark:
		case delta.Deleted:
			delete(k, d.Key)
		default:
			k[d.Key] = d.Object
		}
	}
}

// model is a simple implementation of the queue: one list, searched linearly.
type model struct {
	known     known // nil for a queue without Known
	queued    delta.Deltas[pod]
	populated bool
	initial   int
}

func (m *model) of(key string) (ds delta.Deltas[pod]) {
	for _, d := range m.queued {
		if d.Key == key {
			ds = append(ds, d)
		}
	}
	return ds
}

func (m *model) put(d delta.Delta[pod]) {
	if ds := m.of(d.Key); len(ds) > 0 && ds.Newest().Type == delta.Deleted && d.Type == delta.Deleted {
		if last := ds.Newest(); last.Missed {
			d.Listed = d.Listed || last.Listed
			for i := len(m.queued) - 1; i >= 0; i-- {
				if m.queued[i].Key == d.Key {
					m.queued[i] = d
					return
				}
			}
		}
		return
	}
	m.queued = append(m.queued, d)
}

func (m *model) change(typ delta.Type, p pod) {
	m.populated = true
	if typ == delta.Deleted {
		if _, ok := m.known[p.Name]; !ok && len(m.of(p.Name)) == 0 {
			return
		}
	}
	m.put(delta.Delta[pod]{Type: typ, Key: p.Name, Object: p, Version: podVersion(p)})
}

func (m *model) replace(list []pod, version uint64) {
	first := !m.populated
	m.populated = true
	listed := map[string]bool{}
	for _, p := range list {
		listed[p.Name] = true
		m.put(delta.Delta[pod]{Type: delta.Replaced, Listed: true, Key: p.Name, Object: p, Version: podVersion(p)})
	}
	gone := map[string]pod{}
	for key, p := range m.known {
		gone[key] = p
	}
	for _, d := range m.queued {
		gone[d.Key] = d.Object
	}
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		if ds := m.of(key); listed[key] || len(ds) > 0 && ds.Newest().Type == delta.Deleted {
			continue
		}
		m.put(delta.Delta[pod]{
			Type: delta.Deleted, Missed: true, Listed: true, Key: key, Object: gone[key], Version: version,
		})
	}
	if first {
		m.initial = len(m.keys())
	}
}

func (m *model) resync() {
	for key, p := range m.known.All() {
		if len(m.of(key)) == 0 {
			m.put(delta.Delta[pod]{Type: delta.Sync, Key: key, Object: p, Version: podVersion(p)})
		}
	}
}

func (m *model) keys() (keys []string) {
	for _, d := range m.queued {
		if !slices.Contains(keys, d.Key) {
			keys = append(keys, d.Key)
		}
	}
	return keys
}

func (m *model) synced() bool { return m.populated && m.initial == 0 }

func (m *model) pop() (delta.Deltas[pod], bool) {
	key := m.queued[0].Key
	ds := m.of(key)
	m.queued = slices.DeleteFunc(m.queued, func(d delta.Delta[pod]) bool { return d.Key == key })
	initial := !m.synced()
	if m.initial > 0 {
		m.initial--
	}
	return ds, initial
}

// lockedKnown is known for a consumer in another goroutine.
type lockedKnown struct {
	mu sync.Mutex
	known
}

func (k *lockedKnown) Get(key string) (pod, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known.Get(key)
}

func (k *lockedKnown) All() iter.Seq2[string, pod] {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.known).All()
}
