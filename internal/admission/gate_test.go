// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func enter(t *testing.T, g *Gate) *Pass {
	t.Helper()
	p, err := g.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Begin()
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
		g := NewGate(2, time.Hour)
		a, b := enter(t, g), enter(t, g)
		order := make(chan int, 2)
		for n := range 2 {
			go func() {
				p := enter(t, g)
				order <- n
				p.Leave()
			}()
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Fatal("a third one is through")
		}
		a.Leave()
		a.Leave() // a second call has no effect
		synctest.Wait()
		if first, second := <-order, <-order; first != 0 || second != 1 {
			t.Errorf("%d came before %d", first, second)
		}
		b.Leave()
		if g.active != 0 {
			t.Errorf("%d places are taken in the end", g.active)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		enter(t, g)
		enter(t, g)
		if _, err := g.Enter(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled wait returned %v", err)
		}
	})
}

func TestGate_whoIsLetWaitLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, time.Second)
		idle := enter(t, g)
		// Nothing arrives: the next list does not wait for this one.
		took(t, time.Second, func() { enter(t, g).Leave() })
		idle.Leave()
		if g.active != 0 {
			t.Error("a place that was lost was given back once more")
		}

		// Something arrives now and then: the list keeps its place.
		busy := enter(t, g)
		go func() {
			for range 10 {
				time.Sleep(900 * time.Millisecond)
				busy.Received()
				busy.Awaits()
			}
			busy.Leave()
		}()
		took(t, 9*time.Second, func() { enter(t, g).Leave() })

		// Processing takes long: that is not the server's fault.
		working := enter(t, g)
		working.Received()
		go func() {
			time.Sleep(time.Minute)
			working.Leave()
		}()
		took(t, time.Minute, func() { enter(t, g).Leave() })
	})
}

func TestGate_shutForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, time.Hour)
		g.Shut(5 * time.Second)
		g.Shut(time.Second) // does not shorten the time
		took(t, 5*time.Second, func() { enter(t, g).Leave() })
		// Lists that wait already are delayed too.
		p := enter(t, g)
		go func() {
			time.Sleep(time.Second)
			g.Shut(10 * time.Second)
			p.Leave()
		}()
		took(t, 11*time.Second, func() { enter(t, g).Leave() })
	})
}

func TestMeter_slowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewThrottle(1000, 0)
		took(t, 10*time.Second, func() {
			for range 100 {
				if err := m.Read(t.Context(), 100); err != nil {
					t.Fatal(err)
				}
			}
		})
		time.Sleep(time.Minute) // idle time is not saved up
		took(t, time.Second, func() { _ = m.Read(t.Context(), 1000) })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Read(ctx, 1000); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled wait returned %v", err)
		}
		var none *Throttle
		took(t, 0, func() { _ = none.Read(t.Context(), 1<<30) })
		if NewThrottle(0, 0) != none {
			t.Error("no bound is one")
		}
	})
}

// TestGate_countsAListThatGoesOn has a list stall and continue: no other list is admitted
// until there is room for it again.
func TestGate_countsAListThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, time.Second)
		first := enter(t, g)
		time.Sleep(2 * time.Second)
		second := enter(t, g)
		second.Received()
		first.Received() // continues
		second.Leave()
		go func() {
			time.Sleep(time.Minute)
			first.Leave()
		}()
		took(t, time.Minute, func() { enter(t, g).Leave() })
	})
}

// TestGate_isBusyWhileSomethingComes checks the condition that settling waits for.
func TestGate_isBusyWhileSomethingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(4, time.Second)
		want := func(want bool, when string) {
			t.Helper()
			if g.IsBusy() != want {
				t.Errorf("busy is %t %s", !want, when)
			}
		}
		want(false, "before anything")
		p := enter(t, g)
		want(false, "while nothing has come")
		p.Received()
		want(true, "when something has come")
		p.Awaits()
		want(true, "while more is expected")
		time.Sleep(3 * time.Second)
		want(false, "when nothing comes any more")
		p.Received()
		want(true, "when more has come after all")
		p.Leave()
		want(false, "in the end")
		// A cluster that does not respond is retried many times.
		for range 10 {
			p := enter(t, g)
			time.Sleep(500 * time.Millisecond)
			want(false, "while a server does not answer")
			p.Leave()
		}
	})
}
