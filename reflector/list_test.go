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

// listOnly returns the options for reading pages of a size.
func listOnly(size int64) *reflector.Options {
	return &reflector.Options{ListOnly: true, PageSize: size}
}

func TestList_goesByPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(2), nil)
		w.puts("a", "b", "c", "d", "e")
		w.start().let(time.Second)
		w.wantAsked(`list "0", limit 2`, `list "" from 5/b, limit 2`, `list "" from 5/d, limit 2`, "watch 5")
		w.wantGot("Replaced a@1", "Replaced b@2", "Replaced c@3", "Replaced d@4", "Replaced e@5", "Bookmark 5")
		expect.Equal(t, w.Status().Lists, 1)
	})
}

func TestList_hasTheVersionOfItsFirstPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(2), nil)
		w.puts("a", "b", "c")
		// The second page reports a newer version, like that of a token without a
		// version. The watch must return the changes in between.
		w.server.fail(lists, fault{pace: time.Second}, fault{stale: 5})
		w.start().let(1500 * time.Millisecond)
		w.puts("a", "d")
		w.let(2 * time.Second)
		w.wantAsked(`list "0", limit 2`, `list "" from 3/b, limit 2`, "watch 3")
		w.wantGot("Replaced a@1", "Replaced b@2", "Replaced c@3", "Replaced d@5", "Bookmark 3", "Updated a@4",
			"Added d@5")
		w.wantCopy()
	})
}

func TestList_laterOnIsNotOlderAndNotPaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, listOnly(2))
		w.puts("d")
		w.let(time.Second)
		w.server.send(item{err: expired})
		w.let(time.Second)
		w.wantAsked(`list "4" or newer`, "watch 4")
	})
}

func TestList_asksForTheNewestIfItsVersionWillNotDo(t *testing.T) {
	for name, err := range map[string]error{"expired": expired, "too large": tooLarge} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, listOnly(2))
			w.server.fail(lists, fault{err: err})
			w.server.send(item{err: expired})
			w.untilCopied()
			// The reflector requests one object first, to check whether the server has
			// gone back.
			w.wantAsked(`list "3" or newer`, `list "", limit 1`, `list "", limit 2`, `list "" from 3/b, limit 2`,
				"watch 3")
			expect.Equal(t, w.Status().Restores, 0)
			// The next list is a normal one again.
			w.server.send(item{err: expired})
			w.untilCopied()
			w.wantAsked(`list "3" or newer`, "watch 3")
		})
	}
}

func TestList_asksForTheNewestIfEvenAnyIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(2), nil)
		w.puts("a")
		w.server.fail(lists, fault{err: expired})
		w.start().untilCopied()
		w.wantAsked(`list "0", limit 2`, `list "", limit 2`, "watch 1")
	})
}

func TestList_thatExpiresHalfWayIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(2), nil)
		w.puts("a", "b", "c", "d")
		w.server.fail(lists, fault{}, fault{err: expired})
		w.server.fail(lists, fault{pace: time.Second})
		w.start().let(500 * time.Millisecond)
		w.wantAsked(`list "0", limit 2`, `list "" from 4/b, limit 2`, `list "0"`)
		w.let(10 * time.Second)
		w.wantAsked("watch 4")
		w.wantGot("Replaced a@1", "Replaced b@2", "Replaced a@1", "Replaced b@2", "Replaced c@3", "Replaced d@4",
			"Bookmark 4")
		expect.Equal(t, w.Status().Failures, 1)
		expect.Equal(t, w.Status().Lists, 1)
	})
}

func TestList_thatExpiresHalfWayMissesNoDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(2), nil)
		w.puts("a", "b", "c", "d")
		// After the first page is sent, one of its objects is deleted and the server
		// forgets the deletion.
		w.server.fail(lists, fault{pace: time.Second})
		w.start().let(1500 * time.Millisecond)
		w.server.del("a")
		w.server.forget()
		w.let(time.Second)
		w.wantAsked(`list "0", limit 2`, `list "" from 4/b, limit 2`, `list "0"`, "watch 5")
		w.wantGot("Replaced a@1", "Replaced b@2", "Replaced b@2", "Replaced c@3", "Replaced d@4",
			"Deleted a@1 (missed)", "Bookmark 5")
		w.wantCopy()
	})
}

func TestList_thatBreaksOffInfersNoDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, listOnly(0))
		w.server.del("c")
		w.puts("d")
		w.let(time.Second)
		w.got()
		w.server.fail(lists, fault{cut: errReset, after: 1}, fault{cut: errReset, after: 3})
		w.server.send(item{err: expired})
		w.untilCopied()
		w.wantAsked(`list "5" or newer`, `list "5" or newer`, `list "5" or newer`, "watch 5")
		w.wantGot("Replaced a@1", "Replaced a@1", "Replaced b@2", "Replaced d@5", "Replaced a@1", "Replaced b@2",
			"Replaced d@5", "Bookmark 5")
	})
}

func TestList_findsWhatWentAwayUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, listOnly(0))
		w.server.deafen()
		w.server.del("b")
		w.puts("d")
		w.server.forget()
		w.untilCopied()
		w.wantGot("Replaced a@1", "Replaced c@3", "Replaced d@5", "Deleted b@2 (missed)", "Bookmark 5")
		expect.Equal(t, w.store.Snapshot().Version(), uint64(5))
	})
}

func TestList_thatChangesNothingIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, listOnly(0))
		before := w.store.Snapshot().Revision()
		for range 3 {
			w.server.send(item{err: expired})
			w.untilCopied()
		}
		expect.Equal(t, w.Status().Lists, 4)
		expect.Equal(t, w.store.Snapshot().Revision(), before)
	})
}

func TestList_passesThroughALesserQueue(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := newSmallWorld(t, &reflector.Options{ListOnly: only}, 2)
			w.puts("a", "b", "c", "d", "e", "f", "g")
			w.pause = time.Minute
			w.start().untilCopied()
			w.server.del("b")
			w.server.deafen()
			w.server.forget()
			w.untilCopied()
			expect.Equal(t, w.Status().Dropped, 0)
		})
	}
}
