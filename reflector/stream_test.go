// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

func TestStream_isAskedFirstAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.puts("a", "b")
		w.start().let(time.Second)
		w.wantGot("Replaced a@1", "Replaced b@2", "Bookmark 2")
		w.puts("c")
		w.server.del("a")
		w.let(time.Second)
		w.wantGot("Added c@3", "Deleted a@4")
		w.wantCopy()
		// There is only one request.
		w.wantAsked("stream")
		expect.Equal(t, w.Status().Streams, true)
		expect.Equal(t, w.queue.HasSynced(), true)
	})
}

func TestStream_ofNothingSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.server.skip(7)
		w.start().let(time.Second)
		w.wantGot("Bookmark 7")
		w.wantAsked("stream")
		expect.Equal(t, w.queue.HasSynced(), true)
		expect.Equal(t, w.Status().Version, "7")
	})
}

func TestStream_isCommittedAtItsBookmarkOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.puts("a", "b", "c")
		w.server.fail(watches, fault{pace: time.Second})
		w.start().let(3500 * time.Millisecond)
		expect.Equal(t, w.queue.HasSynced(), false)
		expect.Equal(t, w.Status().State, reflector.Listing)
		w.let(time.Second)
		expect.Equal(t, w.queue.HasSynced(), true)
		expect.Equal(t, w.Status().State, reflector.Watching)
	})
}

func TestStream_bringsWhatHappensMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		// Events between the initial state and the bookmark are part of the state.
		w.server.fail(watches, fault{first: []item{
			{event: event(delta.Added, pod{Name: "a", Version: 1})},
			{event: event(delta.Added, pod{Name: "b", Version: 2})},
			{event: event(delta.Updated, pod{Name: "a", Version: 3})},
			{event: event(delta.Deleted, pod{Name: "b", Version: 4})},
		}})
		w.server.skip(4)
		w.start().let(time.Second)
		w.wantGot("Replaced a@1", "Replaced b@2", "Replaced a@3", "Deleted b@4", "Bookmark 4")
	})
}

func TestStream_refusedIsRememberedAndListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.puts("a")
		w.server.mode = refuses
		w.start()
		synctest.Wait() // there is no backoff, because this is not a failure
		w.wantAsked("stream", `list "0", limit 500`, "watch 1")
		w.wantCopy()
		expect.Equal(t, w.Status().Streams, false)

		w.server.send(item{err: expired})
		w.let(time.Second)
		w.wantAsked(`list "1" or newer`, "watch 1")
	})
}

func TestStream_refusedLaterOnIsNoLongerClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		expect.Equal(t, w.Status().Streams, true)
		w.server.mode = refuses
		w.server.send(item{err: expired})
		w.let(time.Second)
		w.wantAsked("stream 3", `list "3" or newer`, "watch 3")
		expect.Equal(t, w.Status().Streams, false)
	})
}

func TestStream_ignoredByTheServerIsFoundOutByABookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.puts("a", "b")
		w.server.mode, w.server.marks = ignores, 20*time.Second
		w.start().let(19 * time.Second)
		expect.Equal(t, w.queue.HasSynced(), false)
		w.let(2 * time.Second)
		w.wantAsked("stream", `list "0", limit 500`, "watch 2")
		expect.Equal(t, w.queue.HasSynced(), true)
		w.wantCopy()
		w.server.send(item{err: expired})
		w.untilCopied()
		w.wantAsked(`list "2" or newer`, "watch 2")
	})
}

func TestStream_ignoredByTheServerIsFoundOutBySilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.puts("a", "b")
		w.server.mode, w.server.marks = ignores, 0
		w.start().let(29 * time.Second)
		expect.Equal(t, w.queue.HasSynced(), false)
		w.untilCopied()
		within(t, w.Status().Since.Sub(w.times(1)[0]), 30*time.Second, 39*time.Second)
		w.wantAsked("stream", `list "0", limit 500`, "watch 2")
	})
}

func TestStream_thatBreaksOffAlternatesWithPages(t *testing.T) {
	for name, cut := range map[string]error{"error": errReset, "end": io.EOF, "internal": internal} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, nil, nil)
			w.puts("a", "b", "c")
			w.server.fail(watches, fault{cut: cut, after: 2}, fault{cut: cut, after: 1})
			w.server.fail(lists, fault{cut: cut, after: 2})
			w.start().untilCopied()
			w.wantAsked("stream", `list "0", limit 500`, "stream", `list "0", limit 500`, "watch 3")
			expect.Equal(t, w.Status().Failures, 3)
			expect.Equal(t, w.Status().Lists, 1)
		})
	}
}

func TestStream_thatBreaksOffInfersNoDeletion(t *testing.T) {
	for name, kinds := range map[string][]kind{"stream": {watches}, "stream and list": {watches, lists}} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, nil)
			for _, k := range kinds {
				w.server.fail(k, fault{cut: io.ErrUnexpectedEOF, after: 1})
			}
			w.server.send(item{err: expired})
			w.untilCopied()
			for _, d := range w.changes[3:] {
				t.Errorf("%v of %s: nothing has changed", d.Type, d.Key)
			}
			// Deletions that no watch reported are found by the list that does not break
			// off.
			w.server.del("b")
			w.server.deafen()
			w.server.forget()
			w.untilCopied()
		})
	}
}

func TestStream_keepsItsVersionAsALowerBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.send(item{err: expired})
		w.let(time.Second)
		w.wantAsked("stream 3")

		// If even that version is too old, or not reached, only the most recent state is
		// left.
		for _, err := range []error{expired, tooLarge} {
			w.server.fail(watches, fault{err: err})
			w.server.send(item{err: expired})
			w.untilCopied()
			w.wantAsked("stream 3", `list "", limit 1`, "stream")
		}
	})
}

func TestStream_isNotAskedForIfListOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &reflector.Options{ListOnly: true}, nil)
		w.puts("a")
		w.start().let(time.Second)
		w.server.fail(lists, fault{err: errReset})
		w.server.send(item{err: expired})
		w.let(10 * time.Second)
		w.wantAsked(`list "0", limit 500`, "watch 1", `list "1" or newer`, `list "1" or newer`, "watch 1")
	})
}
