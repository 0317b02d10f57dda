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

func TestPark_deletesWhatWasKnownAndComesBack(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, &reflector.Options{ListOnly: only, Absence: time.Nanosecond})
			w.server.vanish()
			w.let(time.Second)
			expect.Equal(t, w.Status().State, reflector.Parked)
			w.wantAsked("served?", "served?")
			w.wantGot("Deleted a@1 (missed)", "Deleted b@2 (missed)", "Deleted c@3 (missed)")
			expect.Equal(t, w.store.Snapshot().Len(), 0)

			w.let(10 * time.Minute)
			times := w.server.times()
			for i, what := range w.server.got() {
				expect.Equal(t, what, "served?")
				if i > 0 {
					within(t, times[i].Sub(times[i-1]), 10*time.Second, 12501*time.Millisecond)
				}
			}
			expect.Equal(t, w.Status().State, reflector.Parked)
			w.wantGot()

			w.server.appear()
			w.puts("x")
			w.let(13 * time.Second)
			expect.Equal(t, w.Status().State, reflector.Watching)
			w.wantGot("Replaced x@7", "Bookmark 7")
			w.wantCopy()
			expect.Equal(t, w.Status().Restores, 0)
		})
	}
}

func TestPark_happensWhereverItIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		only  bool
		sent  []item // how the watch ends
		asked []string
	}{
		"check":  {false, []item{end}, []string{check3, "served?"}},
		"watch":  {false, nil, []string{"watch 3", "served?"}},
		"stream": {false, []item{{err: expired}}, []string{"stream 3", "served?"}},
		"list":   {true, []item{{err: expired}}, []string{`list "3" or newer`, "served?"}},
		"probe":  {true, []item{{err: tooLarge}}, []string{`list "", limit 1`, "served?"}},
	} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, &reflector.Options{
				ListOnly: tt.only, Park: time.Hour, Backoff: time.Minute, Absence: time.Minute,
			})
			w.server.hide()
			w.server.send(tt.sent...)
			w.untilState(reflector.Parked)
			w.wantAsked(tt.asked...)
			w.let(time.Minute)
			expect.Equal(t, w.store.Snapshot().Len(), 0)
		})
	}
}

func TestPark_beforeThereWasAnythingIsNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.server.vanish()
		w.start().let(time.Hour)
		expect.Equal(t, w.Status().State, reflector.Parked)
		expect.Equal(t, w.queue.HasSynced(), false)
		w.wantGot()
		expect.Equal(t, w.Status().Failures, 1)
		w.server.appear()
		w.puts("a")
		w.untilCopied()
		expect.Equal(t, w.queue.HasSynced(), true)
	})
}

func TestPark_deletesWhatAnIncompleteListBrought(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: only, Absence: time.Nanosecond}, nil)
			w.puts("a", "b", "c")
			w.server.fail(lists, fault{cut: errReset, after: 2})
			w.server.fail(watches, fault{cut: errReset, after: 2})
			w.start().untilFailed(1)
			expect.Equal(t, w.store.Snapshot().Len(), 2)
			w.server.vanish()
			w.untilState(reflector.Parked)
			w.let(time.Second)
			expect.Equal(t, w.store.Snapshot().Len(), 0)
		})
	}
}

func TestPark_isNotForAResourceThatIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.send(item{err: notServed})
		synctest.Wait()
		expect.Equal(t, w.Status().State, reflector.Waiting)
		w.let(time.Second)
		w.wantAsked("served?", "stream 3")
		w.wantGot("Replaced a@1", "Replaced b@2", "Replaced c@3", "Bookmark 3")
	})
}

func TestPark_isNotForAServerThatCannotSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.fail(serves, fault{err: busy(time.Minute)})
		w.server.fail(watches, fault{err: notServed})
		w.server.send(item{err: notServed})
		w.let(59 * time.Second)
		expect.Equal(t, w.Status().State, reflector.Waiting)
		expect.Equal(t, w.store.Snapshot().Len(), 3)
		w.until("watching", func() bool { return w.Status().Watches == 2 })
		w.wantAsked("served?", "stream 3", "served?", "stream 3")
		expect.Equal(t, w.Status().Failures, 3)
	})
}

func TestPark_outlastsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, &reflector.Options{Park: time.Minute})
		w.server.vanish()
		w.untilState(reflector.Parked)
		w.until("empty", func() bool { return w.store.Snapshot().Len() == 0 })
		w.server.fail(serves, fault{err: refused}, fault{err: internal})
		w.let(3 * time.Minute)
		expect.Equal(t, w.Status().State, reflector.Parked)
		expect.Equal(t, w.Status().Failures, 3)
		w.server.appear()
		w.untilCopied()
	})
}

func TestPark_inARestoredServerGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The backup is from before the resource existed. The resource is then installed
		// again.
		w := advanced(t, nil)
		w.server.restore(0)
		w.server.vanish()
		w.untilState(reflector.Parked)
		w.server.appear()
		w.puts("x")
		w.untilCopied()
		expect.Equal(t, w.Status().Restores, 1)
		// A reader that continues from the store's version must not skip what the server
		// will write next.
		expect.Equal(t, w.store.Snapshot().Version(), uint64(1))
	})
}
