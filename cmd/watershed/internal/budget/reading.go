// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package budget

import "runtime/metrics"

// reading is what the runtime reports about memory. It is used by one goroutine.
type reading struct{ samples []metrics.Sample }

const (
	live = iota
	total
	objects
	free
	unused
	released
)

func newReading() *reading {
	r := &reading{samples: make([]metrics.Sample, released+1)}
	for i, name := range [...]string{
		live:     "/gc/heap/live:bytes",
		total:    "/memory/classes/total:bytes",
		objects:  "/memory/classes/heap/objects:bytes",
		free:     "/memory/classes/heap/free:bytes",
		unused:   "/memory/classes/heap/unused:bytes",
		released: "/memory/classes/heap/released:bytes",
	} {
		r.samples[i].Name = name
	}
	return r
}

// used returns the bytes that were in use at the end of the last garbage collection: its live
// objects, and what is not part of the heap, such as stacks. Garbage does not count. The
// runtime lets it grow up to the limit whether or not memory is scarce.
func (r *reading) used() int64 {
	metrics.Read(r.samples)
	value := func(i int) int64 { return int64(r.samples[i].Value.Uint64()) }
	return value(live) + value(total) - value(objects) - value(free) - value(unused) - value(released)
}
