// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func enter(t *testing.T, g *gate) *pass {
	t.Helper()
	p, err := g.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.begin()
	return p
}

func took(t *testing.T, want time.Duration, do func()) {
	t.Helper()
	began := time.Now()
	do()
	if d := time.Since(began); d != want {
		t.Errorf("took %v, not %v", d, want)
	}
}

func TestGate_letsAFewThroughInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2, time.Hour)
		a, b := enter(t, g), enter(t, g)
		order := make(chan int, 2)
		for n := range 2 {
			go func() {
				p := enter(t, g)
				order <- n
				p.leave()
			}()
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Fatal("a third one is through")
		}
		a.leave()
		a.leave() // a second call has no effect
		synctest.Wait()
		if first, second := <-order, <-order; first != 0 || second != 1 {
			t.Errorf("%d came before %d", first, second)
		}
		b.leave()
		if g.active != 0 {
			t.Errorf("%d places are taken in the end", g.active)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		enter(t, g)
		enter(t, g)
		if _, err := g.enter(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled wait returned %v", err)
		}
	})
}

func TestGate_whoIsLetWaitLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, time.Second)
		idle := enter(t, g)
		// Nothing arrives: the next list does not wait for this one.
		took(t, time.Second, func() { enter(t, g).leave() })
		idle.leave()
		if g.active != 0 {
			t.Error("a place that was lost was given back once more")
		}

		// Something arrives now and then: the list keeps its place.
		busy := enter(t, g)
		go func() {
			for range 10 {
				time.Sleep(900 * time.Millisecond)
				busy.received()
				busy.awaits()
			}
			busy.leave()
		}()
		took(t, 9*time.Second, func() { enter(t, g).leave() })

		// Processing takes long: that is not the server's fault.
		working := enter(t, g)
		working.received()
		go func() {
			time.Sleep(time.Minute)
			working.leave()
		}()
		took(t, time.Minute, func() { enter(t, g).leave() })
	})
}

func TestGate_shutForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, time.Hour)
		g.shut(5 * time.Second)
		g.shut(time.Second) // does not shorten the time
		took(t, 5*time.Second, func() { enter(t, g).leave() })
		// Lists that wait already are delayed too.
		p := enter(t, g)
		go func() {
			time.Sleep(time.Second)
			g.shut(10 * time.Second)
			p.leave()
		}()
		took(t, 11*time.Second, func() { enter(t, g).leave() })
	})
}

func TestMeter_slowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newThrottle(1000, 0)
		took(t, 10*time.Second, func() {
			for range 100 {
				if err := m.read(t.Context(), 100); err != nil {
					t.Fatal(err)
				}
			}
		})
		time.Sleep(time.Minute) // idle time is not saved up
		took(t, time.Second, func() { _ = m.read(t.Context(), 1000) })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.read(ctx, 1000); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled wait returned %v", err)
		}
		var none *throttle
		took(t, 0, func() { _ = none.read(t.Context(), 1<<30) })
		if newThrottle(0, 0) != none {
			t.Error("no bound is one")
		}
	})
}
