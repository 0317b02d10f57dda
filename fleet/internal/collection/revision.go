// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// A revision of a collection is a time in microseconds, or the next number if that one is
// taken, times 1024, plus the slot: a random number below 1024 that is the same in all
// revisions of the fleet. It fits in an int64. Revisions of one resource grow, also when
// its collection is freed and made again, those of different processes are about the same
// at the same time, and a foreign one is recognized.
const (
	// SlotBits is how many bits of a revision are the slot.
	SlotBits = 10
	// mostAhead is how far, in microseconds, a foreign revision may be ahead of the clock
	// to count as one of a process with another clock.
	mostAhead = uint64(time.Minute / time.Microsecond)
	// mostRaised limits how many revisions without a change are remembered.
	mostRaised = 64
)

// NewSlot returns the slot of a fleet: one for all its collections, so that another
// process can be recognized by any revision that it issued.
func NewSlot() uint64 { return rand.Uint64N(1 << SlotBits) }

// microseconds returns the time as used in revisions.
func microseconds() uint64 { return uint64(time.Now().UnixMicro()) }

// clock issues the revisions of one collection, whose mu guards it.
type clock struct {
	// slot is the fleet's, and part of all revisions.
	slot uint64
	// revision is the newest one of a state.
	revision uint64
	// latest is the newest one, also if no state has it: see [Collection.Reserve]. The catalog
	// reads it after the collection was freed.
	latest *atomic.Uint64
	// raised are the newest revisions without a change, oldest first.
	raised []uint64
}

// newClock returns a clock whose revisions are greater than a given one.
func newClock(slot, after uint64) clock {
	c := clock{slot: slot, latest: new(atomic.Uint64)}
	c.latest.Store(after)
	return c
}

// advance issues the next revision, at a time.
func (c *clock) advance(now uint64) uint64 {
	c.revision = c.next(now)
	return c.revision
}

// next issues a revision that is greater than all before, at a time, without making it that of a
// state.
func (c *clock) next(now uint64) uint64 {
	n := max(now, c.latest.Load()>>SlotBits+1)<<SlotBits | c.slot
	c.latest.Store(n)
	return n
}

// recognizes reports whether a revision can be one of this clock. If it cannot, all later
// revisions are greater than that one, so that a client does not see revisions decrease,
// unless it is more than a minute ahead of the clock.
func (c *clock) recognizes(revision uint64) bool {
	if revision <= c.latest.Load() && revision&(1<<SlotBits-1) == c.slot {
		return true
	}
	if micros, now := revision>>SlotBits, microseconds(); revision > c.latest.Load() && micros <= now+mostAhead {
		if c.raised = append(c.raised, c.advance(max(now, micros+1))); len(c.raised) > mostRaised {
			c.raised = slices.Delete(c.raised, 0, 1)
		}
	}
	return false
}
