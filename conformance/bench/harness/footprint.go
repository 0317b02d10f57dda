// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	// settleWindow is how long memory must not have shrunk by a hundredth to count
	// as settled.
	settleWindow = 15 * time.Second
	// settleLimit is how long to wait for memory to settle.
	settleLimit = 150 * time.Second
	// RepackTime is when at the earliest a packed informer has packed again, and more
	// densely, what has not changed since it arrived.
	RepackTime = 80 * time.Second
)

// Footprint is the memory of this process.
type Footprint struct {
	// Heap is the live heap in bytes, after a garbage collection.
	Heap int64
	// Objects is how many heap objects there are.
	Objects int64
	// RSS is the current RSS in bytes.
	RSS uint64
	// MaxRSS is the largest RSS so far, in bytes.
	MaxRSS uint64
}

// MeasureFootprint collects garbage and returns the footprint. It collects twice,
// because weakly referenced objects and those with a finalizer are freed by the
// second collection.
func MeasureFootprint() Footprint {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Footprint{Heap: int64(m.HeapAlloc), Objects: int64(m.HeapObjects), RSS: RSS(), MaxRSS: MaxRSS()}
}

// Since returns f with its heap reduced by an earlier one. RSS and MaxRSS stay
// those of the whole process.
func (f Footprint) Since(before Footprint) Footprint {
	f.Heap -= before.Heap
	f.Objects -= before.Objects
	return f
}

// Settle waits at least for the given time and then until the heap has stopped
// shrinking, and returns the footprint.
func Settle(least time.Duration) Footprint {
	began := time.Now()
	now := MeasureFootprint()
	lowest, since := now.Heap, began
	for time.Since(began) < settleLimit && (time.Since(began) < least || time.Since(since) < settleWindow) {
		time.Sleep(3 * time.Second)
		now = MeasureFootprint()
		if now.Heap < lowest-lowest/100 {
			lowest, since = now.Heap, time.Now()
		}
	}
	return now
}

// LiveHeap collects garbage and returns the number of bytes found in use.
func LiveHeap() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
