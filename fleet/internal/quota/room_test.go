// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package quota

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRoom_isSharedByLists checks that lists that are under way count before a reading of the
// memory includes them, and that small resources have memory where others have none.
func TestRoom_isSharedByLists(t *testing.T) {
	var r room
	first, ok := r.reserve(&Usage{}, 1<<40)
	if !ok {
		t.Fatal("without a limit there is no room")
	}
	r.release(first)
	r.set(Memory{Room: 100 << 20, Spare: 160 << 20})
	if first, ok = r.reserve(&Usage{}, 60<<20); !ok {
		t.Fatal("there is no room for a list of 60 MiB")
	}
	if _, ok := r.reserve(&Usage{}, 60<<20); ok {
		t.Error("there is room for two lists of 60 MiB in 100 MiB")
	}
	if !r.isShort() {
		t.Error("no lack of room is recorded")
	}
	r.release(first)
	if !r.fits(0, 60<<20) {
		t.Error("there is no room after the end of a list of which nothing is kept")
	}
	r.set(Memory{Pressure: PressureFull, Room: 100 << 20, Spare: 32 << 20})
	for _, c := range []struct {
		has, n int64
		fits   bool
	}{{0, 1 << 20, true}, {1 << 20, 1 << 20, true}, {2 << 20, 1 << 20, false}, {0, 3 << 20, false}} {
		if got := r.fits(c.has, c.n); got != c.fits {
			t.Errorf("%d bytes of a resource with %d in a spare of 32 MiB: %t", c.n, c.has, got)
		}
	}
}

// TestShortage_growingWait checks that a resource without memory is not read again before
// there is room for it, waits longer each time, and is not forgotten.
func TestShortage_growingWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r room
		var s shortage
		const need = 100 << 20
		attempts := func(during time.Duration, room int64) (n int) {
			r.set(Memory{Room: room})
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(shortagePoll) {
				if !s.blocks(&r, 0) {
					n++
					s.begin(need, true)
				}
			}
			return n
		}
		s.begin(need, true)
		if n := attempts(59*time.Minute, need-1); n != 0 {
			t.Errorf("%d attempts within an hour without room, want none", n)
		}
		if n := attempts(10*time.Minute, need); n < 2 || n > 4 {
			t.Errorf("%d attempts within 10 minutes with room that does not suffice, want 2 to 4", n)
		}
		if n := attempts(time.Hour, need); n < 5 || n > 7 {
			t.Errorf("%d attempts within the next hour, want one every 10 minutes", n)
		}
		r.set(Memory{Room: 2 * need})
		began := time.Now()
		for s.blocks(&r, 0) {
			time.Sleep(time.Second)
		}
		if waited := time.Since(began); waited > time.Minute {
			t.Errorf("with twice the memory it is tried after %s, want a minute", waited)
		}
		s.begin(need, true)
		r.set(Memory{})
		time.Sleep(shortageAge + time.Second)
		if s.blocks(&r, 0) {
			t.Error("a shortage is remembered for more than an hour: the resource may have become smaller")
		}
	})
}
