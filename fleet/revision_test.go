// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/wire"
)

// twoProcesses returns two replicas of one cluster, with a slot each.
func twoProcesses(t *testing.T, slotA, slotB int) (a, b *world, viewA, viewB *View[*wire.Object]) {
	t.Helper()
	a, b = newWorldOf(t, 1<<20, groupTerm(slotA, 0)), newWorldOf(t, 1<<20, groupTerm(slotB, 0))
	for _, w := range []*world{a, b} {
		w.join("eu", "a")
	}
	return a, b, OfResource[*wire.Object](a.fleet, a.c.Resource()), OfResource[*wire.Object](b.fleet, b.c.Resource())
}

// TestRevision_ofAnotherProcessExpires passes a revision of one replica to another one,
// whose revisions overlap with those of the first.
func TestRevision_ofAnotherProcessExpires(t *testing.T) {
	for _, slotB := range []int{5, 3} {
		a, b, viewA, viewB := twoProcesses(t, 3, slotB)
		defer a.close()
		defer b.close()
		sameSlot := slotB == 3 // as for one pair in 1024
		b.put("eu", "a")
		first := viewB.Snapshot().Revision()
		a.put("eu", "b")
		foreign := viewA.Snapshot().Revision()
		b.put("eu", "c")
		if now := viewB.Snapshot().Revision(); foreign <= first || foreign >= now {
			t.Fatalf("%d is not between %d and %d", foreign, first, now)
		}
		if _, err := viewB.FollowAfter(foreign, false); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("same slot %t: after a revision of another process: %v", sameSlot, err)
		}
		if err := viewB.Recognize(foreign); errors.Is(err, fanout.ErrExpired) == sameSlot {
			t.Errorf("same slot %t: recognized: %v", sameSlot, err)
		}
		if err := viewB.Recognize(first); err != nil {
			t.Errorf("an own revision: %v", err)
		}
		if _, err := viewB.FollowAfter(first, false); err != nil {
			t.Errorf("after an own revision: %v", err)
		}
	}
}

// TestRevision_growsAboveWhatItIsShown has a client come from a replica whose clock is
// ahead. The next revision that it receives is greater than the one that it has.
func TestRevision_growsAboveWhatItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1<<20)
		defer w.close()
		w.join("eu", "a")
		view := OfResource[*wire.Object](w.fleet, w.c.Resource())
		before := view.Snapshot().Revision()
		ahead := func(d time.Duration) uint64 {
			return uint64(time.Now().Add(d).UnixMicro())<<collection.SlotBits | (w.slot+1)%(1<<collection.SlotBits)
		}
		for _, far := range []uint64{ahead(61 * time.Second), ^uint64(0)} {
			if _, err := view.FollowAfter(far, false); !errors.Is(err, fanout.ErrExpired) ||
				view.Snapshot().Revision() != before {
				t.Errorf("shown one that is far ahead: %v, and %d becomes %d", err, before, view.Snapshot().Revision())
			}
		}
		shown := ahead(59 * time.Second)
		if _, err := view.FollowAfter(shown, false); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("after a revision that is ahead: %v", err)
		}
		raised := view.Snapshot().Revision()
		if raised <= shown || raised&(1<<collection.SlotBits-1) != w.slot {
			t.Errorf("shown %d, the next revision is %d", shown, raised)
		}
		// A list has the raised revision: a watch continues from there, also later.
		f, err := view.FollowAfter(raised, false)
		if err != nil {
			t.Fatalf("after the raised revision: %v", err)
		}
		w.put("eu", "b")
		if now := view.Snapshot().Revision(); now <= raised {
			t.Errorf("a change after %d has revision %d", raised, now)
		}
		if changes, err := f.TryNext(); changes == nil || err != nil {
			t.Errorf("a follower from the raised revision has %v", err)
		}
		for _, from := range []uint64{before, raised} {
			f, err := view.FollowAfter(from, false)
			if err != nil {
				t.Errorf("after revision %d, later: %v", from, err)
				continue
			}
			if changes, err := f.TryNext(); changes == nil || err != nil {
				t.Errorf("a follower from %d, later, has %v", from, err)
			}
		}
	})
}

// TestRevision_outlivesTheLog has a follower that is up to date when all changes of the
// log expire: it has not missed anything.
func TestRevision_outlivesTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1<<20)
		defer w.close()
		w.join("eu", "a")
		w.put("eu", "b")
		view := OfResource[*wire.Object](w.fleet, w.c.Resource())
		_, f := view.Follow()
		last := view.Snapshot().Revision()
		time.Sleep(time.Minute)
		w.c.Log().Trim(time.Second)
		w.put("eu", "c")
		if _, err := f.TryNext(); err != nil {
			t.Errorf("a follower that was up to date: %v", err)
		}
		if _, err := view.FollowAfter(last, false); err != nil {
			t.Errorf("after the last revision before: %v", err)
		}
		if now := w.c.Log().Stats(); now.Changes != 1 || now.After != last {
			t.Errorf("the log is %+v, want one change after %d", now, last)
		}
	})
}

// TestRevision_isOneForEachChange makes more changes than microseconds pass.
func TestRevision_isOneForEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		w := newWorld(t, 1<<20)
		defer w.close()
		w.join("eu")
		view := OfResource[*wire.Object](w.fleet, w.c.Resource())
		last := view.Snapshot().Revision()
		for range 100 {
			w.put("eu", "a")
			now := view.Snapshot().Revision()
			if now != last+1<<collection.SlotBits {
				t.Fatalf("after %d comes %d", last, now)
			}
			last = now
		}
	})
}
