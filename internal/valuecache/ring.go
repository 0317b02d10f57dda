// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

// ring keeps the values that were decoded last, within a bound. Its owner guards it.
type ring struct {
	max int
	// values is a ring with n values, beginning at first.
	values   []ringValue
	first, n int
	bytes    int
}

type ringValue struct {
	value any
	size  int
}

// add keeps a value, and drops the oldest ones to stay within the bound. It ignores a
// value larger than a quarter of the bound.
func (r *ring) add(value any, size int) {
	if size > r.max/4 {
		return
	}
	r.drop(size)
	if r.n == len(r.values) {
		grown := make([]ringValue, max(64, 2*r.n))
		k := copy(grown, r.values[r.first:])
		copy(grown[k:], r.values[:r.first])
		r.values, r.first = grown, 0
	}
	r.values[(r.first+r.n)%len(r.values)] = ringValue{value, size}
	r.n++
	r.bytes += size
}

// drop drops the oldest values, so that there is room for size bytes.
func (r *ring) drop(size int) {
	for r.n > 0 && r.bytes+size > r.max {
		r.bytes -= r.values[r.first].size
		r.values[r.first] = ringValue{}
		r.first = (r.first + 1) % len(r.values)
		r.n--
	}
}

// clear drops all values.
func (r *ring) clear() { *r = ring{max: r.max} }
