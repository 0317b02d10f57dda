// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// wantSilence checks that the last failure is a silence that began at a time and was
// detected at most a quarter of the limit late.
func (w *world) wantSilence(since time.Time, limit time.Duration) {
	w.t.Helper()
	s := w.Status()
	if s.Err == nil || !strings.Contains(s.Err.Error(), "no data from the server for too long") {
		w.t.Errorf("Err is %v, want a silence", s.Err)
		return
	}
	within(w.t, s.ErrAt.Sub(since), limit, limit*5/4+2*time.Second)
}

func (w *world) untilFailed(n uint64) {
	w.t.Helper()
	w.until("failed", func() bool { return w.Status().Failures >= n })
}

func TestSilence_endsAWatchThatHadBookmarks(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, &reflector.Options{ListOnly: only, Silence: 80 * time.Second})
			w.let(61 * time.Second) // a bookmark has been sent by now
			heard := w.Status().Heard
			w.server.deafen()
			w.puts("d")
			w.untilFailed(1)
			w.wantSilence(heard, 80*time.Second)
			w.untilCopied()
			w.wantAsked(check3, "watch 3")
			w.wantGot("Bookmark 3", "Added d@4")
		})
	}
}

func TestSilence_endsAStreamBetweenItsEndAndTheNextBookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		heard := w.Status().Heard
		w.server.deafen()
		w.untilFailed(1)
		w.wantSilence(heard, 150*time.Second)
	})
}

func TestSilence_isNoneWhileThereAreBookmarksOrEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, &reflector.Options{Silence: 62 * time.Second})
		w.let(time.Hour)
		expect.Equal(t, w.Status().Failures, 0)
		w.server.marks = 0
		for range 60 {
			w.puts("a")
			w.let(time.Minute)
		}
		expect.Equal(t, w.Status().Failures, 0)
	})
}

func TestSilence_endsAWatchWithoutBookmarksWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &reflector.Options{ListOnly: true}, nil)
		w.puts("a")
		w.server.marks = 0
		w.start().untilCopied()
		// A watch without bookmarks may be silent.
		w.let(time.Hour)
		expect.Equal(t, w.Status().Failures, 0)

		w.server.deafen()
		w.server.got()
		over := w.server.last // the next watch may begin in the same instant
		w.untilFailed(1)
		w.wantSilence(over, 30*time.Second)
		w.untilState(reflector.Watching)
		w.wantAsked(`list "1" or newer, limit 1`, "watch 1")
	})
}

func TestSilence_endsRequestsThatAreNotAnswered(t *testing.T) {
	const limit = 40 * time.Second
	opts := &reflector.Options{Silence: limit}
	t.Run("stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, opts, nil)
			w.server.fail(watches, fault{hang: true})
			w.start().untilFailed(1)
			w.wantSilence(w.times(1)[0], limit)
			w.untilCopied()
		})
	})
	t.Run("list", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{Silence: limit, ListOnly: true}, nil)
			w.server.fail(lists, fault{hang: true})
			w.start().untilFailed(1)
			w.wantSilence(w.times(1)[0], limit)
			w.untilCopied()
		})
	})
	t.Run("check", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := watching(t, opts)
			w.server.fail(lists, fault{hang: true})
			w.server.send(item{err: errReset})
			w.untilFailed(2)
			w.wantSilence(w.times(1)[0], limit)
			w.untilCopied()
			w.wantAsked(check3, check3, "watch 3")
		})
	})
	t.Run("served", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, opts, nil)
			w.server.fail(serves, fault{hang: true})
			w.server.vanish()
			w.start().untilFailed(2)
			w.wantSilence(w.times(2)[1], limit)
			w.untilState(reflector.Parked)
			w.server.fail(serves, fault{hang: true})
			asked := len(w.server.times())
			w.untilFailed(w.Status().Failures + 1)
			w.wantSilence(w.times(asked + 1)[asked], limit)
			w.server.appear()
			w.untilCopied()
		})
	})
}

func TestSilence_endsAStateThatStopsHalfWay(t *testing.T) {
	t.Run("list", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, listOnly(0), nil)
			w.puts("a", "b", "c")
			w.server.fail(lists, fault{deaf: true, after: 2})
			w.start().untilFailed(1)
			w.wantSilence(w.times(1)[0], 150*time.Second)
			w.untilCopied()
		})
	})
	t.Run("stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil, nil)
			w.puts("a", "b", "c")
			w.server.fail(watches, fault{deaf: true, after: 2})
			w.start().untilFailed(1)
			// A server that streams its state does not pause for long.
			w.wantSilence(w.times(1)[0], 30*time.Second)
			w.untilCopied()
		})
	})
}

func TestSilence_isNoneInASlowButSteadyState(t *testing.T) {
	for name, tt := range map[string]struct {
		only bool
		pace time.Duration
	}{
		"listed":   {true, 140 * time.Second},
		"streamed": {false, 28 * time.Second},
	} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: tt.only}, nil)
			w.puts("a", "b", "c", "d", "e", "f", "g", "h")
			w.server.fail(lists, fault{pace: tt.pace})
			w.server.fail(watches, fault{pace: tt.pace})
			w.start().until("synced", w.queue.HasSynced)
			expect.Equal(t, w.Status().Failures, 0)
			w.wantCopy()
		})
	}
}

func TestSilence_ofUndecodableObjectsIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.server.fail(watches, fault{
			pace: 25 * time.Second,
			first: []item{
				unreadable(delta.Updated, "", ""), unreadable(delta.Updated, "", ""), unreadable(delta.Updated, "", ""),
			},
		})
		w.start().until("synced", w.queue.HasSynced)
		expect.Equal(t, w.Status().Failures, 0)
		expect.Equal(t, w.Status().Dropped, 3)
	})
}

func TestSilence_isNotAnotherProducersTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.puts("a")
		other, err := w.queue.Relist(t.Context())
		expect.Equal(t, err, nil)
		w.start().let(4 * time.Minute)
		other.Close()
		w.let(time.Second)
		w.wantCopy()
		expect.Equal(t, w.Status().Failures, 0)
	})
}

func TestSilence_isNotTheConsumersSlowness(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := newSmallWorld(t, &reflector.Options{ListOnly: only}, 1)
			w.puts("a", "b", "c", "d")
			w.pause = 7 * time.Minute
			w.start().until("synced", w.queue.HasSynced)
			expect.Equal(t, w.Status().Failures, 0)
			expect.Equal(t, w.Status().Lists, 1)
			w.server.got()
			w.puts("e", "f", "g", "h")
			w.let(time.Hour)
			w.wantCopy()
			expect.Equal(t, w.Status().Failures, 0)
		})
	}
}
