// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

import "sync"

// Recent keeps recently decoded values alive, so that they need not be decoded again. It
// is bounded by an estimate of their size. All methods are safe for concurrent use, and
// do nothing on nil.
type Recent struct {
	// mu guards the fields below.
	mu  sync.Mutex
	max int
	// values is a ring with n values, beginning at first.
	values   []recentValue
	first, n int
	bytes    int
	// suspended means that no values are kept.
	suspended bool
}

type recentValue struct {
	value any
	size  int
}

// NewRecent returns a Recent that keeps values of about max bytes.
func NewRecent(max int) *Recent { return &Recent{max: max} }

// locked calls a function with the lock, or not at all on nil.
func (r *Recent) locked(do func()) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// add keeps a value, and drops the oldest ones to stay within the bound. It ignores a
// value larger than a quarter of the bound.
func (r *Recent) add(value any, size int) {
	r.locked(func() {
		if r.suspended || size > r.max/4 {
			return
		}
		r.dropLocked(size)
		if r.n == len(r.values) {
			grown := make([]recentValue, max(64, 2*r.n))
			k := copy(grown, r.values[r.first:])
			copy(grown[k:], r.values[:r.first])
			r.values, r.first = grown, 0
		}
		r.values[(r.first+r.n)%len(r.values)] = recentValue{value, size}
		r.n++
		r.bytes += size
	})
}

// dropLocked drops the oldest values, so that there is room for size bytes.
func (r *Recent) dropLocked(size int) {
	for r.n > 0 && r.bytes+size > r.max {
		r.bytes -= r.values[r.first].size
		r.values[r.first] = recentValue{}
		r.first = (r.first + 1) % len(r.values)
		r.n--
	}
}

// Resize changes the bound, and drops the oldest values that exceed it.
func (r *Recent) Resize(max int) {
	r.locked(func() {
		r.max = max
		r.dropLocked(0)
	})
}

// Clear drops all values.
func (r *Recent) Clear() { r.locked(r.clearLocked) }

func (r *Recent) clearLocked() {
	r.values = nil
	r.first = 0
	r.n = 0
	r.bytes = 0
}

// Suspend drops all values, and keeps no others until Resume. Values that are decoded
// meanwhile belong to objects that nothing may need any more.
func (r *Recent) Suspend() {
	r.locked(func() {
		r.clearLocked()
		r.suspended = true
	})
}

// Resume ends a suspension.
func (r *Recent) Resume() { r.locked(func() { r.suspended = false }) }

// Size returns the number of values that are kept, and about how many bytes they take.
func (r *Recent) Size() (n, bytes int) {
	r.locked(func() { n, bytes = r.n, r.bytes })
	return n, bytes
}

// decodedSize estimates the size of a value that was decoded from n bytes. Measured on
// pods, Go types take 3.3 times their protobuf and maps 6 times their JSON.
func decodedSize(n int, maps bool) int {
	if maps {
		return 512 + 6*n
	}
	return 512 + 13*n/4
}
