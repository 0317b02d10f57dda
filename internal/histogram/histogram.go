// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package histogram counts durations in buckets, with atomics only. The engine uses it
// because it must not import a metrics library.
//
// # Guarantees
//
// A snapshot may lack an observation that is made at the same time, but its count is
// always the sum of its buckets.
//
// # What blocks
//
// Nothing blocks.
//
// # Bounds and ownership
//
// A histogram costs 8 bytes for each bucket and 32 bytes. An observation costs two atomic
// additions and a search of the bounds, together about 10 ns.
package histogram

import (
	"sync/atomic"
	"time"
)

// Histogram counts durations by size. All methods are safe for concurrent use.
type Histogram struct {
	bounds []time.Duration
	counts []atomic.Uint64
	sum    atomic.Int64
}

// New returns an empty histogram. Bounds are the inclusive upper limits of its buckets in
// increasing order. Longer durations are counted in a last bucket. The caller must not
// modify bounds.
func New(bounds []time.Duration) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts a duration. It does nothing on nil.
func (h *Histogram) Observe(d time.Duration) {
	if h == nil {
		return
	}
	i := 0
	for i < len(h.bounds) && d > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// Snapshot returns the counts. On nil it returns the zero value.
func (h *Histogram) Snapshot() Snapshot {
	if h == nil {
		return Snapshot{}
	}
	s := Snapshot{Bounds: h.bounds, Buckets: make([]uint64, len(h.bounds)), Sum: time.Duration(h.sum.Load())}
	for i := range h.counts {
		s.Count += h.counts[i].Load()
		if i < len(s.Buckets) {
			s.Buckets[i] = s.Count
		}
	}
	return s
}

// Snapshot is the content of a histogram at one time.
type Snapshot struct {
	// Bounds are the inclusive upper limits of the buckets. The histogram owns them.
	Bounds []time.Duration
	// Buckets has, for each bound, how many durations did not exceed it.
	Buckets []uint64
	// Count is the number of all durations, and Sum their sum.
	Count uint64
	Sum   time.Duration
}

// Add adds a snapshot with the same bounds.
func (s *Snapshot) Add(other Snapshot) {
	if s.Bounds == nil {
		s.Bounds, s.Buckets = other.Bounds, make([]uint64, len(other.Buckets))
	}
	for i := range other.Buckets {
		s.Buckets[i] += other.Buckets[i]
	}
	s.Count += other.Count
	s.Sum += other.Sum
}
