// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache

// recent keeps the values that were decoded last, within a bound. Its owner guards it.
type recent struct {
	max, bytes int
	// values are the oldest first. Appending copies them now and then, and so frees the room of
	// those that were dropped.
	values []recentValue
}

type recentValue struct {
	value any
	size  int
}

// add keeps a value, and drops the oldest ones to stay within the bound. It ignores a
// value larger than a quarter of the bound.
func (r *recent) add(value any, size int) {
	if size > r.max/4 {
		return
	}
	r.drop(size)
	r.values = append(r.values, recentValue{value, size})
	r.bytes += size
}

// drop drops the oldest values, so that there is room for size bytes.
func (r *recent) drop(size int) {
	for len(r.values) > 0 && r.bytes+size > r.max {
		r.bytes -= r.values[0].size
		r.values[0] = recentValue{}
		r.values = r.values[1:]
	}
}
