// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
	for name, err := range map[string]error{"refused": refused, "busy": busy(0), "internal": internal, "unknown": errReset} {
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

func TestBackoff_beginsAgainAfterACalm(t *testing.T) {
	for _, tt := range []struct {
		name        string
		calm        time.Duration
		least, most time.Duration
	}{
		{"short", 119 * time.Second, 25600 * time.Millisecond, 51200 * time.Millisecond},
		{"long", 121 * time.Second, 0, 800 * time.Millisecond},
	} {
		bubble(tt.name, t, func(t *testing.T) {
			w := watching(t, nil)
			w.server.fail(lists, slices.Repeat([]fault{{err: refused}}, 5)...)
			w.server.send(item{err: refused})
			w.until("watching", func() bool { return w.Status().Watches == 2 })
			// The calm begins after the wait for the last failure.
			w.let(tt.calm - time.Since(w.Status().Since))
			w.server.got()
			w.server.send(item{err: refused})
			cut := time.Now()
			w.until("watching", func() bool { return w.Status().Watches == 3 })
			within(t, w.times(1)[0].Sub(cut), tt.least, tt.most)
		})
	}
}

func TestBackoff_longRetryAfterIsNoCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A wait that the server asked for does not count as a time without failures.
		w := watching(t, nil)
		w.server.fail(lists, slices.Repeat([]fault{{err: busy(10 * time.Minute)}}, 4)...)
		w.server.fail(lists, fault{err: refused})
		w.server.send(item{err: errReset})
		w.until("watching", func() bool { return w.Status().Watches == 2 })
		times := w.times(6)
		for i := range 4 {
			within(t, times[i+1].Sub(times[i]), 10*time.Minute, 10*time.Minute+time.Second)
		}
		within(t, times[5].Sub(times[4]), 12800*time.Millisecond, 25600*time.Millisecond)
	})
}
