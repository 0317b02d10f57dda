// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"runtime"
	"time"
)

// Cost runs f, which does n operations, and returns the processor time of one.
func Cost(n int, f func()) time.Duration {
	start := CPUTime()
	f()
	return (CPUTime() - start) / time.Duration(n)
}

// Alternate measures two costs in turns and returns the mean of each. Taking turns
// makes each side pay for its own garbage, and exposes both to the same
// disturbances of the machine.
func Alternate(rounds int, ours, theirs func() time.Duration) (o, t time.Duration) {
	runtime.GC()
	for range rounds {
		o += ours()
		t += theirs()
	}
	return o / time.Duration(rounds), t / time.Duration(rounds)
}
