// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// SlotBits is how many bits of a revision are the slot.
	SlotBits = 10
	// GroupSlots is how many slots belong to replica groups: those below it. A process
	// without a group has a random one of the others.
	GroupSlots = 1 << (SlotBits - 1)
	// mostAhead is how far, in microseconds, a foreign revision may be ahead of the clock
	// of a process without a group to count as one of a process with another clock.
	mostAhead = uint64(time.Minute / time.Microsecond)
	// reserve is how far, in microseconds, a foreign revision must be below the bound to raise the
	// clock: the revisions after it need room too.
	reserve = uint64(5 * time.Minute / time.Microsecond)
)

// Term is a period in which one process issues the revisions of one slot. Revisions are unique
// as long as no two terms with the same slot overlap: all revisions of a term are later than
// its beginning and earlier than its bound, both in microseconds since 1970, and whoever uses
// the slot next begins at that bound.
//
// A collection numbers its changes in any case. The bound limits which of the numbers a
// program may show to others: see [Term.Allows]. All methods are safe for concurrent use.
type Term struct {
	slot uint64
	// after is the time that all revisions of the term are later than.
	after uint64
	// now returns the time, or 0 while it is not known: revisions then grow by one.
	now func() uint64
	// bound is the time that all shown revisions are earlier than.
	bound atomic.Uint64
	// shown is the time of the newest revision that was allowed.
	shown atomic.Uint64
	// alone means that the process has no group.
	alone bool

	// running ends with the term. It is nil if the term never ends.
	running context.Context
	end     context.CancelFunc
}

// NewTerm returns a term of a slot below [GroupSlots]. All its revisions are later than the time
// after. Now returns the time of the group, or 0 while it is not known; revisions then grow by
// one for each change. No revision may be shown before the first [Term.Extend]. Times are in
// microseconds since 1970.
func NewTerm(slot int, after uint64, now func() uint64) *Term {
	t := &Term{slot: uint64(slot) % GroupSlots, after: after, now: now}
	t.running, t.end = context.WithCancel(context.Background())
	return t
}

// NewOwnTerm returns the term of a process without a group. It has a random slot and the clock of
// this machine, does not end, and has no bound.
func NewOwnTerm() *Term { return ownTerm(GroupSlots + rand.Uint64N(GroupSlots)) }

// ownTerm returns the term of a process without a group that has a given slot.
func ownTerm(slot uint64) *Term {
	t := &Term{slot: slot, now: microseconds, alone: true}
	t.bound.Store(math.MaxUint64)
	return t
}

// microseconds returns the time of this machine.
func microseconds() uint64 { return uint64(time.Now().UnixMicro()) }

// Slot returns the slot of the term's revisions.
func (t *Term) Slot() int { return int(t.slot) }

// Extend sets the bound, after the new one has been stored where the next owner of the slot
// finds it. The bound never decreases. Only the owner of the slot calls Extend, in one goroutine.
func (t *Term) Extend(bound uint64) { t.bound.Store(max(bound, t.bound.Load())) }

// Bound returns the bound.
func (t *Term) Bound() uint64 { return t.bound.Load() }

// End ends the term: no revision of it may be shown any more.
func (t *Term) End() {
	if t.end != nil {
		t.end()
	}
}

// Running returns a context that ends with the term, nil if the term never ends.
func (t *Term) Running() context.Context { return t.running }

// Ended reports whether the term has ended.
func (t *Term) Ended() bool { return t.running != nil && t.running.Err() != nil }

// Allows reports whether a revision that a collection has issued may be shown: it is one of this
// term, which has not ended, and earlier than the bound.
func (t *Term) Allows(revision uint64) bool {
	micros := revision >> SlotBits
	if t.Ended() || !t.has(revision) || micros >= t.bound.Load() {
		return false
	}
	for shown := t.shown.Load(); shown < micros && !t.shown.CompareAndSwap(shown, micros); {
		shown = t.shown.Load()
	}
	return true
}

// Shown returns the time of the newest revision that was allowed, 0 if there is none.
func (t *Term) Shown() uint64 { return t.shown.Load() }

// has reports whether a revision can be one of the term.
func (t *Term) has(revision uint64) bool {
	return revision&(1<<SlotBits-1) == t.slot && revision>>SlotBits > t.after
}

// raises reports whether a foreign revision with a time can have been issued by another process.
// The bounds of all members of a group are equally far ahead.
func (t *Term) raises(micros uint64) bool {
	if t.alone {
		return micros <= t.now()+mostAhead
	}
	return micros+reserve < t.bound.Load()
}
