// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "time"

// cadence is the timing of a journal.
type cadence struct {
	// pace is how often members are examined that are not live, or in which something
	// fails. The others are examined once every sweep.
	pace, sweep time.Duration
	// burst is how long the journal waits after a failure for related ones.
	burst time.Duration
	// failure is how long something must fail before that is logged. The first retry of a
	// list or watch comes within 1.6 s, and most failures end with it. patience is the
	// same limit for discovery and the directory, which are read less often, and for
	// resources that fail without a response.
	failure, patience time.Duration
	// progress is how often the progress of the first sync is logged, and idle how often
	// while nothing progresses.
	progress, idle time.Duration
}

// defaultCadence is the timing outside tests.
var defaultCadence = cadence{
	pace: time.Second, sweep: time.Minute, burst: 250 * time.Millisecond,
	failure: 3 * time.Second, patience: 10 * time.Second,
	progress: 5 * time.Second, idle: time.Minute,
}
