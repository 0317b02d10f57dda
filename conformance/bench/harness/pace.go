// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import "time"

// PaceInterval is how often a burst of changes is due.
const PaceInterval = time.Millisecond

// Pace is how many changes are due in every [PaceInterval].
type Pace int

// Due returns when change k is due, if the first is due at start.
func (p Pace) Due(start time.Time, k int) time.Time {
	return start.Add(time.Duration(k/int(p)) * PaceInterval)
}

// Count returns how many changes are due in a time.
func (p Pace) Count(d time.Duration) int { return int(d/PaceInterval) * int(p) }
