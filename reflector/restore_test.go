// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// advanced returns a world that has seen version 6: a, b and c as of version 3, then a
// and d written and b deleted.
func advanced(t *testing.T, opts *reflector.Options) *world {
	t.Helper()
	w := watching(t, opts)
	w.server.put("a", "second")
	w.puts("d")
	w.server.del("b")
	w.untilCopied()
	w.got()
	return w
}

func TestRestore_isFoundWhenTheConnectionComesBack(t *testing.T) {
	for name, tt := range map[string]struct {
		only  bool
		asked []string
	}{
		"streamed": {false, []string{`list "6" or newer, limit 1`, `list "", limit 1`, "stream"}},
		"listed":   {true, []string{`list "6" or newer, limit 1`, `list "", limit 1`, `list "", limit 500`, "watch 4"}},
	} {
		bubble(name, t, func(t *testing.T) {
			w := advanced(t, &reflector.Options{ListOnly: tt.only})
			w.server.restore(3)
			w.server.put("a", "other") // version 4 again, with different content
			w.untilCopied()
			w.wantAsked(tt.asked...)
			w.wantGot("Replaced a@4 (missed)", "Replaced b@2 (missed)", "Replaced c@3 (missed)", "Deleted d@5 (missed)",
				"Bookmark 4 (missed)")
			expect.Equal(t, w.store.Snapshot().Version(), uint64(4))
			s := w.Status()
			expect.Equal(t, s.Restores, 1)
			expect.Equal(t, s.Version, "4")

			// Changes after the restore are followed.
			w.server.put("b", "later")
			w.let(time.Second)
			w.wantGot("Updated b@5")
			w.wantCopy()
			w.server.send(item{err: expired})
			w.untilCopied()
			expect.Equal(t, w.Status().Restores, 1)
		})
	}
}

func TestRestore_isFoundWhenAWatchCannotBeBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := advanced(t, nil)
		// The watch ends in good order, and then connections are refused for a while.
		w.server.fail(watches, fault{err: refused})
		w.until("refused", func() bool { return w.Status().Failures == 1 })
		w.server.restore(3)
		w.untilCopied()
		expect.Equal(t, w.Status().Restores, 1)
	})
}

func TestRestore_isFoundAfterASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := advanced(t, nil)
		w.server.deafen()
		w.server.restore(2)
		w.untilCopied()
		expect.Equal(t, w.Status().Restores, 1)
	})
}

func TestRestore_isFoundAfterASilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := advanced(t, nil)
		// The server is restored after the check, when the watch is on its way. It sends
		// nothing from a version that it does not have, and ends the watch in good order.
		w.server.fail(watches, fault{delay: time.Second})
		w.server.send(item{err: errReset})
		w.until("checked", func() bool { return len(w.server.got()) > 0 })
		w.server.restore(2)
		w.untilCopied()
		expect.Equal(t, w.Status().Restores, 1)
	})
}

func TestRestore_isFoundByTheNextRun(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := advanced(t, &reflector.Options{ListOnly: only})
			w.stopRun()
			w.server.restore(3)
			w.run()
			w.untilCopied()
			expect.Equal(t, w.Status().Restores, 1)
			expect.Equal(t, w.store.Snapshot().Version(), uint64(3))
		})
	}
}

func TestRestore_isOneHoweverManyTriesItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := advanced(t, nil)
		w.server.fail(watches, fault{cut: errReset, after: 1})
		w.server.fail(lists, fault{}, fault{}, fault{cut: errReset, after: 2}, fault{err: busy(0)})
		w.server.restore(3)
		w.untilCopied()
		expect.Equal(t, w.Status().Restores, 1)
	})
}

func TestRestore_isNotForgottenWhenTheResourceSeemsToBeGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := advanced(t, nil)
		w.server.fail(watches, fault{err: notServed})
		w.server.restore(3)
		w.untilCopied()
		w.wantAsked(`list "6" or newer, limit 1`, `list "", limit 1`, "stream", "served?", "stream")
		expect.Equal(t, w.Status().Restores, 1)
	})
}

func TestRestore_isNotForgottenWhenTheSourceCatchesUp(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := advanced(t, &reflector.Options{ListOnly: only})
			// The first list of the restored state breaks off before its first object.
			// When the next one is requested, the server's version is higher than any
			// before, but the versions of its objects are not.
			w.server.fail(watches, fault{cut: errReset})
			if only {
				w.server.fail(lists, fault{}, fault{}, fault{cut: errReset})
			}
			w.server.restore(3)
			w.until("broken off", func() bool { return w.Status().Failures == 3 })
			w.server.skip(100)
			w.untilCopied()
			expect.Equal(t, w.Status().Restores, 1)
		})
	}
}

func TestRestore_isNoneIfTheServerMerelyLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := advanced(t, nil)
		w.server.fail(lists, fault{err: tooLarge})
		w.server.send(item{err: errReset})
		w.untilCopied()
		w.wantAsked(`list "6" or newer, limit 1`, `list "", limit 1`, "stream")
		expect.Equal(t, w.Status().Restores, 0)
	})
}

func TestStale_listIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := advanced(t, listOnly(0))
		// A lagging server responds with an older state than requested.
		w.server.fail(lists, fault{stale: 5})
		w.server.send(item{err: expired})
		w.until("listed", func() bool { return w.Status().Lists == 2 })
		w.untilCopied()
		w.wantAsked(`list "6" or newer`, `list "", limit 1`, `list "", limit 500`, "watch 6")
		expect.Equal(t, w.Status().Restores, 0)
		expect.Equal(t, w.store.Snapshot().Version(), uint64(6))
	})
}

func TestStale_listDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, listOnly(0))
		w.server.fail(lists, fault{stale: 1})
		w.server.send(item{err: expired})
		w.until("listed", func() bool { return w.Status().Lists == 2 })
		w.wantGot("Replaced a@1", "Replaced a@1", "Replaced b@2", "Replaced c@3", "Bookmark 3")
	})
}

func TestStale_streamIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		mark := bookmark(2)
		mark.event.InitialEnd = true
		w.server.fail(watches, fault{first: []item{mark}})
		w.server.send(item{err: expired})
		w.until("listed", func() bool { return w.Status().Lists == 2 })
		w.wantAsked("stream 3", `list "", limit 1`, "stream")
		w.wantGot("Replaced a@1", "Replaced b@2", "Replaced c@3", "Bookmark 3")
	})
}

func TestStale_checkIsNoPermissionToWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.fail(lists, fault{stale: 2})
		w.server.send(item{err: errReset})
		w.until("listed", func() bool { return w.Status().Lists == 2 })
		w.wantAsked(check3, `list "", limit 1`, "stream")
		expect.Equal(t, w.Status().Restores, 0)
	})
}
