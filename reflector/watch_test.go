// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

const check3 = `list "3" or newer, limit 1`

func TestWatch_isResumedAfterAnErrorWithACheck(t *testing.T) {
	for name, err := range map[string]error{
		"reset": errReset, "internal": internal, "busy": busy(0), "refused": refused,
	} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, nil)
			w.puts("d")
			w.server.send(item{err: err})
			// Changes before the watch is resumed are not lost.
			synctest.Wait()
			w.puts("e")
			w.let(time.Second)
			w.wantAsked(`list "4" or newer, limit 1`, "watch 4")
			w.wantGot("Added d@4", "Added e@5")
			expect.Equal(t, w.Status().Lists, 1)
		})
	}
}

func TestWatch_isResumedAtOnceWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		before := w.Status()
		w.let(time.Hour)
		asked := w.server.got()
		if len(asked) < 6 || len(asked) > 12 {
			t.Errorf("%d watches in an hour, want one in 5 to 10 minutes: %q", len(asked), asked)
		}
		for _, what := range asked {
			expect.Equal(t, what, "watch 3")
		}
		after := w.Status()
		expect.Equal(t, after.Failures, 0)
		expect.Equal(t, after.State, reflector.Watching)
		expect.Equal(t, after.Since, before.Since)
	})
}

func TestWatch_thatEndsBeforeItsTimeIsCheckedAndResumedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.let(10 * time.Second)
		w.server.send(end)
		synctest.Wait()
		w.wantAsked(check3, "watch 3")
		expect.Equal(t, w.Status().Failures, 0)
	})
}

func TestWatch_isCheckedAfterAFailureToOpenIt(t *testing.T) {
	// The watch ends on time and cannot be opened again: the server has restarted, and
	// the next one may be different.
	for name, err := range map[string]error{
		"refused": refused, "busy": busy(time.Second), "internal": internal, "unknown": errReset,
	} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, nil)
			w.server.fail(watches, fault{err: err})
			w.until("over", func() bool { return w.Status().Failures == 1 })
			w.untilState(reflector.Watching)
			w.wantAsked("watch 3", check3, "watch 3")
		})
	}
}

func TestWatch_thatIsTooOldIsReplacedByAList(t *testing.T) {
	t.Run("by an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := watching(t, nil)
			w.server.fail(watches, fault{err: expired})
			w.server.send(item{err: errReset})
			w.untilCopied()
			w.wantAsked(check3, "watch 3", "stream 3")
		})
	})
	t.Run("by an event", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := watching(t, nil)
			w.server.deafen()
			w.puts("d")
			w.server.forget()
			w.untilCopied()
			w.wantAsked(check3, "watch 3", "stream 3")
		})
	})
}

func TestWatch_waitsAsLongAsABusyServerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		before := time.Now()
		w.server.fail(lists, fault{err: busy(45 * time.Second)})
		w.server.fail(watches, fault{err: busy(20 * time.Second)}, fault{err: refused}, fault{err: busy(0)})
		w.server.send(item{err: busy(90 * time.Second)})
		w.until("watching", func() bool { return w.Status().Watches == 2 })
		times := w.times(4)
		within(t, times[0].Sub(before), 90*time.Second, 91*time.Second)
		within(t, times[1].Sub(times[0]), 45*time.Second, 46*time.Second)
		expect.Equal(t, times[2], times[1])
		within(t, times[3].Sub(times[2]), 20*time.Second, 21*time.Second)
		// Busy and refused do not mean that the state has changed.
		w.wantAsked(check3, check3, "watch 3", check3, "watch 3", check3, "watch 3", check3, "watch 3")
		expect.Equal(t, w.Status().Lists, 1)
		w.wantGot()
	})
}

func TestWatch_refusedForLongIsNotReplacedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.fail(lists, slices.Repeat([]fault{{err: refused}}, 40)...)
		w.server.send(item{err: errReset})
		w.until("refused", func() bool { return w.Status().Failures == 41 })
		w.puts("d")
		w.untilCopied()
		for _, what := range w.server.got() {
			if what != check3 && what != "watch 3" {
				t.Errorf("asked %q of a server that does not listen", what)
			}
		}
	})
}

func TestWatch_thatEndsAtOnceIsNoWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		before := time.Now()
		// A bookmark without a new version is not news either.
		w.server.fail(watches, fault{first: []item{end}}, fault{first: []item{bookmark(3), end}},
			fault{first: []item{end}})
		w.server.send(end)
		w.until("listed", func() bool { return w.Status().Lists == 2 })
		times := w.times(7)
		// The first watch ended early, but not at once, so it is resumed without a wait.
		expect.Equal(t, times[0], before)
		within(t, times[2].Sub(times[1]), 0, 800*time.Millisecond)
		within(t, times[4].Sub(times[3]), 800*time.Millisecond, 1600*time.Millisecond)
		within(t, times[6].Sub(times[5]), 1600*time.Millisecond, 3200*time.Millisecond)
		w.wantAsked(check3, "watch 3", check3, "watch 3", check3, "watch 3", "stream 3")
	})
}

func TestWatch_thatFailsThriceWithoutNewsIsReplacedByAList(t *testing.T) {
	for name, err := range map[string]error{"unknown": errReset, "internal": internal} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, nil)
			// A watch with news resets the count.
			w.server.send(item{err: err})
			w.server.fail(watches,
				fault{first: []item{{err: err}}},
				fault{first: []item{bookmark(4), {err: err}}},
				fault{err: err}, fault{first: []item{{err: err}}},
				fault{cut: err, after: 1, first: []item{bookmark(4)}})
			w.server.skip(1)
			w.until("listed", func() bool { return w.Status().Lists == 2 })
			check4 := `list "4" or newer, limit 1`
			w.wantAsked(check3, "watch 3", check3, "watch 3", check4, "watch 4", check4, "watch 4", check4, "watch 4",
				"stream 4")
		})
	}
}

func bookmark(version int) item {
	return item{event: reflector.Event[pod]{Type: delta.Bookmark, Version: fmt.Sprint(version)}}
}

func TestWatch_bookmarkAdvancesTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.skip(39)
		w.let(61 * time.Second)
		w.wantGot("Bookmark 42")
		expect.Equal(t, w.Status().Version, "42")
		expect.Equal(t, w.store.Snapshot().Version(), uint64(42))
		w.server.forget()
		w.server.send(item{err: errReset})
		w.let(time.Second)
		w.wantAsked(`list "42" or newer, limit 1`, "watch 42")
	})
}

func TestWatch_repeatedEventsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.puts("a", "d")
		w.server.send(
			item{event: event(delta.Added, pod{Name: "a", Version: 1})},
			item{event: event(delta.Deleted, pod{Name: "a", Version: 2})},
			bookmark(2),
			item{err: errReset})
		w.let(time.Second)
		w.wantCopy()
		expect.Equal(t, w.store.Snapshot().Version(), uint64(5))
		// The version does not go back with them, because the server would then send the
		// same events again.
		w.wantAsked(`list "5" or newer, limit 1`, "watch 5")
	})
}

func TestWatch_ofRepeatedEventsOnlyIsFruitless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		again := fault{first: []item{{event: event(delta.Added, pod{Name: "a", Version: 1})}, end}}
		w.server.fail(watches, again, again, again)
		w.server.send(end)
		w.until("listed", func() bool { return w.Status().Lists == 2 })
		w.wantAsked(check3, "watch 3", check3, "watch 3", check3, "watch 3", "stream 3")
	})
}

func TestWatch_versionsNeedNotBeNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.send(item{event: reflector.Event[pod]{Type: delta.Bookmark, Version: "x1"}})
		w.let(time.Second)
		expect.Equal(t, w.Status().Version, "x1")
	})
}

// TestWatch_withoutAVersionIsReplacedByAList: there is no version to continue from, and a
// check without a version is rejected.
func TestWatch_withoutAVersionIsReplacedByAList(t *testing.T) {
	for name, ended := range map[string]item{"early": end, "broken": {err: errReset}} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: true}, nil)
			w.server.unversioned, w.server.marks = true, 0
			w.puts("a", "b")
			w.start().let(2 * time.Second)
			w.wantAsked(`list "0", limit 500`, "watch ")
			w.server.delUnseen("a")
			w.server.send(ended)
			w.let(time.Second)
			w.wantAsked(`list "0", limit 500`, "watch ")
			w.wantCopy()
			// The same happens when the watch ends on time: only a list finds the
			// deletions.
			w.let(10 * time.Minute)
			for i, what := range w.server.got() {
				expect.Equal(t, what, []string{`list "0", limit 500`, "watch "}[i%2])
			}
		})
	}
}
