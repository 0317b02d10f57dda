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
	collections
)

func newReading() *reading {
	r := &reading{samples: make([]metrics.Sample, collections+1)}
	for i, name := range [...]string{
		live:     "/gc/heap/live:bytes",
		total:    "/memory/classes/total:bytes",
		objects:  "/memory/classes/heap/objects:bytes",
		free:     "/memory/classes/heap/free:bytes",
		unused:   "/memory/classes/heap/unused:bytes",
		released: "/memory/classes/heap/released:bytes",

		collections: "/gc/cycles/total:gc-cycles",
	} {
		r.samples[i].Name = name
	}
	return r
}

// read returns the bytes that were in use at the end of the last garbage collection, and how
// many collections there were. The bytes are its live objects, and what is not part of the
// heap, such as stacks. Garbage does not count. The runtime lets it grow up to the limit
// whether or not memory is scarce.
func (r *reading) read() (used int64, cycles uint64) {
	metrics.Read(r.samples)
	value := func(i int) int64 { return int64(r.samples[i].Value.Uint64()) }
	used = value(live) + value(total) - value(objects) - value(free) - value(unused) - value(released)
	return used, r.samples[collections].Value.Uint64()
}
