// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/watershed-project/watershed/fanout"
)

// A revision of a collection is a time in microseconds, or the next number if that one is
// taken, times 1024, plus the slot: a random number below 1024 that is the same in all
// revisions of the fleet. It fits in an int64. Revisions of one collection grow, those of
// different processes are about the same at the same time, and a foreign one is
// recognized.
const (
	slotBits = 10
	// mostAhead is how far, in microseconds, a foreign revision may be ahead of the clock
	// to count as one of a process with another clock.
	mostAhead = uint64(time.Minute / time.Microsecond)
	// mostRaised limits how many revisions without a change are remembered.
	mostRaised = 64
)

// newSlot returns the slot of a fleet: one for all its collections, so that another
// process can be recognized by any revision that it issued.
func newSlot() uint64 { return rand.Uint64N(1 << slotBits) }

// microseconds returns the time as used in revisions.
func microseconds() uint64 { return uint64(time.Now().UnixMicro()) }

// nextLocked returns the revision after the newest one, at a time.
func (c *collection) nextLocked(now uint64) uint64 {
	return max(now, c.revision>>slotBits+1)<<slotBits | c.slot
}

// recognize returns nil if the collection has issued a revision. Otherwise the error is
// [ErrExpired] and all later revisions are greater than that one, so that a client does
// not see revisions decrease, unless it is more than a minute ahead of the clock.
func (c *collection) recognize(revision uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision <= c.revision && revision&(1<<slotBits-1) == c.slot {
		return nil
	}
	if micros, now := revision>>slotBits, microseconds(); revision > c.revision && micros <= now+mostAhead {
		c.revision = c.nextLocked(max(now, micros+1))
		if c.raised = append(c.raised, c.revision); len(c.raised) > mostRaised {
			c.raised = slices.Delete(c.raised, 0, 1)
		}
	}
	return c.foreign(revision)
}

func (c *collection) foreign(revision uint64) error {
	return fmt.Errorf("%s after revision %d: %w", c.resource, revision, ErrExpired)
}

// issued reports whether the collection has issued a revision that is not before the
// log's window. There are few slots: two processes can have the same one, but hardly the
// same revisions.
func (c *collection) issued(revision uint64) bool {
	c.mu.Lock()
	_, raised := slices.BinarySearch(c.raised, revision)
	newest := c.revision
	c.mu.Unlock()
	if raised || revision == newest || revision == c.log.Stats().After {
		return true
	}
	cursor, err := c.log.Cursor(revision-1, fanout.Everything())
	if err != nil {
		return false
	}
	// If the change has just left the log, reading from it fails as well.
	batch, err := cursor.TryNext()
	return err != nil || len(batch) > 0 && batch[0].Revision == revision
}
