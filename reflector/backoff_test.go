// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// waits returns the times between requests that all fail with err.
func waits(t *testing.T, opts *reflector.Options, n int, err error) []time.Duration {
	t.Helper()
	w := newWorld(t, opts, nil)
	w.server.choose = func(kind) fault { return fault{err: err} }
	w.start().let(2 * time.Hour)
	times := w.times(n + 1)
	var waits []time.Duration
	for i := range n {
		waits = append(waits, times[i+1].Sub(times[i]))
	}
	return waits
}

func TestBackoff_doublesUpToItsMost(t *testing.T) {
	for name, err := range map[string]error{
		"refused": refused, "busy": busy(0), "internal": internal, "unknown": errReset,
	} {
		bubble(name, t, func(t *testing.T) {
			got := waits(t, nil, 12, err)
			within(t, got[0], 0, 800*time.Millisecond)
			step := 800 * time.Millisecond
			for _, wait := range got[1:] {
				within(t, wait, step, 2*step)
				step = min(2*step, 30*time.Second)
			}
		})
	}
}

func TestBackoff_isRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := waits(t, nil, 40, refused)[10:]
		slices.Sort(got)
		if spread := got[len(got)-1] - got[0]; spread < 10*time.Second {
			t.Errorf("30 waits of [30s, 60s) are within %v of each other", spread)
		}
	})
}

func TestBackoff_isTheOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// After many failures with a long first step, the doubling must not overflow.
		got := waits(t, &reflector.Options{Backoff: 10 * time.Second, MaxBackoff: 25 * time.Second}, 80, refused)
		within(t, got[0], 0, 10*time.Second)
		within(t, got[1], 10*time.Second, 20*time.Second)
		within(t, got[2], 20*time.Second, 40*time.Second)
		for _, wait := range got[3:] {
			within(t, wait, 25*time.Second, 50*time.Second)
		}
	})
}

func TestBackoff_isBoundedFromTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i, wait := range waits(t, &reflector.Options{Backoff: time.Hour, MaxBackoff: time.Second}, 20, refused) {
			if i == 0 {
				within(t, wait, 0, time.Second)
			} else {
				within(t, wait, time.Second, 2*time.Second)
			}
		}
	})
}

// TestBackoff_isNotForTheLossOfASoundWatch: a proxy or a load balancer that ends
// connections after a time, and servers that restart one after another, must not leave the
// copy without a watch.
func TestBackoff_isNotForTheLossOfASoundWatch(t *testing.T) {
	for name, ended := range map[string]error{"cut": errReset, "ended": io.EOF} {
		for _, after := range []time.Duration{time.Second, 3 * time.Second, time.Minute} {
			bubble(fmt.Sprint(name, " after ", after), t, func(t *testing.T) {
				w := watching(t, nil)
				for range 20 {
					w.let(after)
					w.server.got()
					w.server.send(item{err: ended})
					synctest.Wait()
					w.wantAsked(check3, "watch 3")
				}
				expect.Equal(t, w.Status().Watches, 21)
				expect.Equal(t, w.Status().Lists, 1)
			})
		}
	}
}

// TestBackoff_isNotForTheLossOfAWatchWithNews: the watch has worked, however short it was.
func TestBackoff_isNotForTheLossOfAWatchWithNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		began := time.Now()
		for range 20 {
			w.puts("d")
			w.server.send(item{err: errReset})
			synctest.Wait()
		}
		expect.Equal(t, w.Status().Watches, 21)
		expect.Equal(t, time.Since(began), 0)
		w.wantCopy()
	})
}

// TestBackoff_isForWatchesThatAreCutAtOnce: otherwise they would be opened as fast as the
// server responds. The initial state is not news.
func TestBackoff_isForWatchesThatAreCutAtOnce(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: only}, nil)
			w.puts("a", "b", "c")
			w.start()
			for range 1000 {
				synctest.Wait()
				w.server.send(item{err: errReset})
				w.let(100 * time.Millisecond)
			}
			if n := w.Status().Watches; n > 12 {
				t.Errorf("%d watches in 100 seconds, each cut after at most 100 ms", n)
			}
		})
	}
}

// TestBackoff_beginsAgainAfterASoundWatch: what happened before the watch says nothing about
// the server that it was lost to.
func TestBackoff_beginsAgainAfterASoundWatch(t *testing.T) {
	for _, tt := range []struct {
		name        string
		lasts       time.Duration
		least, most time.Duration
	}{
		{"short", 999 * time.Millisecond, 12800 * time.Millisecond, 25600 * time.Millisecond},
		{"sound", time.Second, 0, 800 * time.Millisecond},
	} {
		bubble(tt.name, t, func(t *testing.T) {
			w := watching(t, nil)
			w.grain = time.Millisecond
			w.server.fail(lists, slices.Repeat([]fault{{err: refused}}, 5)...)
			w.server.send(item{err: errReset})
			w.until("watching", func() bool { return w.Status().Watches == 2 })
			w.let(tt.lasts - time.Since(w.Status().Since))
			w.server.got()
			w.server.fail(lists, fault{err: refused})
			w.server.send(item{err: errReset})
			cut := time.Now()
			w.until("watching", func() bool { return w.Status().Watches == 3 })
			times := w.times(2)
			if tt.lasts < time.Second {
				within(t, times[0].Sub(cut), tt.least, tt.most)
				return
			}
			expect.Equal(t, times[0], cut)
			within(t, times[1].Sub(times[0]), tt.least, tt.most)
		})
	}
}

func TestBackoff_countsFailuresWithALongRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.fail(lists, slices.Repeat([]fault{{err: busy(10 * time.Minute)}}, 4)...)
		w.server.fail(lists, fault{err: refused})
		w.server.send(item{err: errReset})
		w.until("watching", func() bool { return w.Status().Watches == 2 })
		times := w.times(6)
		for i := range 4 {
			within(t, times[i+1].Sub(times[i]), 10*time.Minute, 10*time.Minute+time.Second)
		}
		within(t, times[5].Sub(times[4]), 6400*time.Millisecond, 12800*time.Millisecond)
	})
}
