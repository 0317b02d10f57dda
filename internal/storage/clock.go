// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"sync"
	"time"
)

const (
	// maxStep is how far the clock may be ahead of the time that has passed and is believed
	// at once, and confirmStep how long it must be further ahead to be believed. A clock that
	// is wrong for a moment must neither remove the past nor make the log wait until it is
	// right.
	maxStep     = time.Minute
	confirmStep = 5 * time.Minute
)

// clock is the time of the logs. It goes by the clock of the machine, but never back: if that
// clock is set back, it stands still until it is reached. If that clock is set forward by
// more than maxStep, it goes on by the time that passes for confirmStep first. All methods
// are safe for concurrent use.
type clock struct {
	mu sync.Mutex
	// start is the first reading.
	start time.Time
	// time is the time at the last reading, and elapsed what had passed since start.
	time    time.Time
	elapsed time.Duration
	// ahead means that the clock of the machine is further ahead than maxStep, and since
	// what had passed when that began.
	ahead bool
	since time.Duration
}

// read returns the time. Now is a reading of the clock of the machine.
func (c *clock) read(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.start.IsZero() {
		c.start, c.time = now, now.Round(0)
	}
	return c.advanceLocked(now.Round(0), now.Sub(c.start)) // Sub measures what has passed
}

// advanceLocked returns the time for a reading of the machine's clock at which a duration has
// passed since the first one.
func (c *clock) advanceLocked(machine time.Time, elapsed time.Duration) time.Time {
	expected := c.time.Add(max(0, elapsed-c.elapsed))
	c.elapsed = max(c.elapsed, elapsed)
	if !machine.After(expected.Add(maxStep)) {
		c.ahead, c.time = false, later(c.time, machine)
		return c.time
	}
	if !c.ahead {
		c.ahead, c.since = true, c.elapsed
	}
	if c.time = expected; c.elapsed-c.since >= confirmStep {
		c.ahead, c.time = false, machine
	}
	return c.time
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
