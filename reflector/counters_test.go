// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// TestCounters_haveTheCauseOfEachList makes a reflector read its state again for each
// cause.
func TestCounters_haveTheCauseOfEachList(t *testing.T) {
	for name, tt := range map[string]struct {
		cause reflector.Cause
		act   func(w *world)
	}{
		"expired":   {reflector.VersionExpired, func(w *world) { w.server.send(item{err: expired}) }},
		"went back": {reflector.WentBack, func(w *world) { w.server.restore(2) }},
		"lost deletion": {
			reflector.LostDeletion, func(w *world) {
				w.server.delUnseen("b")
				w.server.send(unreadable(delta.Deleted, "", "4"))
			},
		},
		"watch failed": {reflector.WatchFailed, func(w *world) {
			w.server.fail(watches, fault{err: errReset}, fault{err: errReset}, fault{err: errReset})
			w.server.send(item{err: errReset})
		}},
		"requested": {reflector.Requested, func(w *world) { w.Relist() }},
		"not found": {reflector.NotFound, func(w *world) { w.server.vanish(); w.let(time.Minute); w.server.appear() }},
		"expired, and the list fails": {reflector.VersionExpired, func(w *world) {
			w.server.fail(watches, fault{err: errReset}, fault{err: internal})
			w.server.send(item{err: expired})
		}},
	} {
		bubble(name, t, func(t *testing.T) {
			counters := new(reflector.Counters)
			w := watching(t, &reflector.Options{Counters: counters})
			expect.Equal(t, counters.Counts().Lists, [reflector.Causes]uint64{reflector.Begun: 1})
			tt.act(w)
			w.let(5 * time.Minute)
			w.wantCopy()
			want := [reflector.Causes]uint64{reflector.Begun: 1}
			want[tt.cause] = 1
			n := counters.Counts()
			expect.Equal(t, n.Lists, want)
			s := w.Status()
			failures := n.Silent
			for _, count := range n.Failures {
				failures += count
			}
			expect.Equal(t, []uint64{n.Watches, failures, n.Restores, n.Dropped},
				[]uint64{s.Watches, s.Failures, s.Restores, s.Dropped})
		})
	}
}

func TestCounters_ofEventsAndSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counters := new(reflector.Counters)
		w := watching(t, &reflector.Options{Counters: counters})
		w.server.put("a", "second")
		w.puts("d", "e", "f")
		w.server.del("b")
		w.untilCopied()
		w.let(61 * time.Second)
		n := counters.Counts()
		expect.Equal(t, []uint64{n.Added, n.Updated, n.Deleted, n.Bookmarks}, []uint64{3, 1, 1, 1})
		expect.Equal(t, n.Silent, 0)
		if w.Arrived().IsZero() || !w.Arrived().IsZero() {
			t.Error("Arrived does not return the time of the first event once")
		}
		w.server.deafen()
		w.untilFailed(1)
		expect.Equal(t, counters.Counts().Silent, 1)
	})
}

// TestCause_hasANameOfItsOwn keeps two causes from having one label.
func TestCause_hasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for c := range reflector.Cause(reflector.Causes) {
		seen[c.String()] = true
	}
	expect.Equal(t, len(seen), reflector.Causes)
}
