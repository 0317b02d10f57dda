// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"time"

	"github.com/watershed-project/watershed/internal/histogram"
	"github.com/watershed-project/watershed/reflector"
)

// delayBounds are the buckets of [Counts.Delay].
var delayBounds = []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}

// Counters counts the work of the engines that have it in their options, across all
// their runs. All methods are safe for concurrent use. Counters cost about 300 bytes. A
// watch event costs one atomic addition, and a batch of events two and a reading of the
// clock. Objects of lists cost nothing.
type Counters struct {
	reflector reflector.Counters
	delay     *histogram.Histogram
}

// NewCounters returns counters at zero.
func NewCounters() *Counters { return &Counters{delay: histogram.New(delayBounds)} }

// Counts is the content of [Counters] at one time.
type Counts struct {
	reflector.Counts
	// Delay has, for each batch of watch events, the time from the arrival of its first
	// event until the batch was stored and its readers were notified.
	Delay histogram.Snapshot
}

// Counts returns the content.
func (c *Counters) Counts() Counts {
	return Counts{Counts: c.reflector.Counts(), Delay: c.delay.Snapshot()}
}

// applied counts a batch whose first watch event arrived at a time, which is zero if the
// batch has none.
func (c *Counters) applied(arrived time.Time) {
	if !arrived.IsZero() {
		c.delay.Observe(max(0, time.Since(arrived)))
	}
}

// BatchStats describes a batch that an engine has stored.
type BatchStats struct {
	// Changes is the number of changes, with bookmarks. Queued is how many wait now.
	Changes, Queued int
	// Took is how long it took to store the batch and to notify readers.
	Took time.Duration
	// Version is the server's version of the copy, 0 if it is not known.
	Version uint64
}
