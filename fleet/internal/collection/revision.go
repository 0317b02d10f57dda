// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"slices"
	"sync/atomic"
)

// A revision of a collection is a time in microseconds, or the next number if that one is
// taken, times 1024, plus the slot of the process's [Term]. It fits in an int64. Revisions of one
// resource grow, also when its collection is freed and made again, or when another term begins.
// Those of different processes are about the same at the same time, and a foreign one is
// recognized by its slot.

// mostRaised limits how many revisions without a change are remembered.
const mostRaised = 64

// clock issues the revisions of one collection, whose mu guards it.
type clock struct {
	// terms returns the present term of the process, and term is the one of revision.
	terms func() *Term
	term  *Term
	// revision is the newest one of a state.
	revision uint64
	// latest is the newest one, also if no state has it: see [Collection.Reserve]. The catalog
	// reads it after the collection was freed.
	latest *atomic.Uint64
	// raised are the newest revisions without a change, oldest first.
	raised []uint64
}

// newClock returns a clock whose revisions are greater than a given one.
func newClock(terms func() *Term, after uint64) clock {
	c := clock{terms: terms, term: terms(), latest: new(atomic.Uint64)}
	c.latest.Store(after)
	return c
}

// follow makes the newest revision one of the present term, and reports whether that is another
// term than before.
func (c *clock) follow() bool {
	t := c.terms()
	if t == c.term {
		return false
	}
	c.term = t
	c.raise(t.now())
	return true
}

// advance issues the next revision, at a time.
func (c *clock) advance(now uint64) uint64 {
	c.revision = c.next(now)
	return c.revision
}

// next issues a revision that is greater than all before, at a time, without making it that of a
// state.
func (c *clock) next(now uint64) uint64 {
	n := max(now, c.latest.Load()>>SlotBits+1, c.term.after+1)<<SlotBits | c.term.slot
	c.latest.Store(n)
	return n
}

// raise issues the next revision, at a time, and remembers that it has no change.
func (c *clock) raise(now uint64) {
	if c.raised = append(c.raised, c.advance(now)); len(c.raised) > mostRaised {
		c.raised = slices.Delete(c.raised, 0, 1)
	}
}

// recognizes reports whether a revision can be one of this clock. If it cannot, all later
// revisions are greater than that one, so that a client does not see revisions decrease,
// unless no other process can have issued it: see [Term.raises].
func (c *clock) recognizes(revision uint64) bool {
	if revision <= c.latest.Load() && c.term.has(revision) {
		return true
	}
	if micros := revision >> SlotBits; revision > c.revision && c.term.raises(micros) {
		c.raise(max(c.term.now(), micros+1))
	}
	return false
}
