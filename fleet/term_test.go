// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/wire"
)

// groupTerm returns a term whose bound is never reached.
func groupTerm(slot int, after uint64) *Term {
	term := NewTerm(slot, after, microseconds)
	term.Extend(math.MaxUint64)
	return term
}

// slotOf and timeOf return the parts of a revision.
func slotOf(revision uint64) int    { return int(revision & (1<<collection.SlotBits - 1)) }
func timeOf(revision uint64) uint64 { return revision >> collection.SlotBits }

// TestTerm_anotherOne has a process lose its slot and take another one. Revisions of the ended
// term are not issued any more and have expired, and those of the new one are greater than all
// before and later than the bound that the term replaced.
func TestTerm_anotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := groupTerm(7, 0)
		w := newWorldIn(t, 1<<20, func() *Term { return term })
		defer w.close()
		w.join("eu", "a")
		view := OfResource[*wire.Object](w.fleet, w.c.Resource())
		old := view.Snapshot().Revision()
		if slotOf(old) != 7 || !term.Allows(old) {
			t.Fatalf("revision %d has slot %d, allowed: %t", old, slotOf(old), term.Allows(old))
		}
		before := term
		before.End()
		if before.Allows(old) {
			t.Error("an ended term allows a revision")
		}
		after := microseconds() + uint64(time.Hour/time.Microsecond)
		term = groupTerm(9, after)
		if term.Allows(old) {
			t.Error("a term allows a revision of another one")
		}
		for name, now := range map[string]uint64{
			"a snapshot": view.Snapshot().Revision(), "the last change": view.Changed(),
			"the last change of a cluster": view.In("eu").Changed(), "a reserved one": view.Reserve(),
		} {
			if slotOf(now) != 9 || now <= old || timeOf(now) <= after || !term.Allows(now) {
				t.Errorf("%s has revision %d with slot %d, after %d", name, now, slotOf(now), old)
			}
		}
		if _, err := view.FollowAfter(old, false); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("after a revision of the ended term: %v", err)
		}
		now := view.Snapshot().Revision()
		w.put("eu", "b")
		f, err := view.FollowAfter(now, false)
		if err != nil {
			t.Fatalf("after the first revision of the new term: %v", err)
		}
		if changes, err := f.TryNext(); changes == nil || err != nil {
			t.Errorf("a follower from the first revision of the new term has %v", err)
		}
		if err := view.Recognize(after<<collection.SlotBits | 9); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("a revision of the slot from before the term: %v", err)
		}
	})
}

// TestTerm_bound issues revisions up to the bound, without the time.
func TestTerm_bound(t *testing.T) {
	term := NewTerm(7, 1000, func() uint64 { return 0 })
	w := newWorldOf(t, 1<<20, term)
	defer w.close()
	w.join("eu")
	view := OfResource[*wire.Object](w.fleet, w.c.Resource())
	if now := view.Snapshot().Revision(); term.Allows(now) {
		t.Errorf("revision %d is allowed before there is a bound", now)
	}
	const bound = 1010
	term.Extend(bound)
	term.Extend(5) // does not decrease
	last := timeOf(view.Snapshot().Revision())
	for last < bound+5 {
		w.put("eu", "a")
		now := view.Snapshot().Revision()
		if timeOf(now) != last+1 || term.Allows(now) != (timeOf(now) < bound) {
			t.Fatalf("after %d comes %d, allowed: %t", last, timeOf(now), term.Allows(now))
		}
		last = timeOf(now)
	}
}

// TestTerm_presented presents foreign revisions to a member of a group: only those that are
// below its bound, with room for more, raise the clock.
func TestTerm_presented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := NewTerm(7, 0, microseconds)
		w := newWorldOf(t, 1<<20, term)
		defer w.close()
		w.join("eu", "a")
		view := OfResource[*wire.Object](w.fleet, w.c.Resource())
		presentable := microseconds() + 100
		term.Extend(presentable + uint64(5*time.Minute/time.Microsecond))
		before := view.Snapshot().Revision()
		for _, foreign := range []uint64{presentable<<collection.SlotBits | 8, 1 << 62, math.MaxInt64} {
			err := view.Recognize(foreign)
			if !errors.Is(err, fanout.ErrExpired) || view.Snapshot().Revision() != before {
				t.Errorf("revision %d: %v, and %d becomes %d", foreign, err, before, view.Snapshot().Revision())
			}
		}
		foreign := (presentable-1)<<collection.SlotBits | 1023
		// A reserved revision that is greater than the foreign one does not replace the raise: a
		// list has the revision of the newest state.
		for range 200 {
			view.Reserve()
		}
		if err := view.Recognize(foreign); !errors.Is(err, fanout.ErrExpired) || view.Snapshot().Revision() <= foreign {
			t.Errorf("revision %d: %v, and the next one is %d", foreign, err, view.Snapshot().Revision())
		}
	})
}
