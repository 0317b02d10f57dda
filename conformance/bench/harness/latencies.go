// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"slices"
	"time"
)

// Latencies are durations in any order.
type Latencies []time.Duration

// Quantiles sorts the latencies and returns the median, the 99th percentile and the
// longest. They are 0 if there are no latencies.
func (l Latencies) Quantiles() (p50, p99, longest time.Duration) {
	n := len(l)
	if n == 0 {
		return 0, 0, 0
	}
	slices.Sort(l)
	return l[n/2], l[n*99/100], l[n-1]
}
