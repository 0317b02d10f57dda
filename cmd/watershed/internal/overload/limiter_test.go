// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package overload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// check verifies the invariants of a limiter.
func (l *Limiter) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	held, waiting, watches, slow := 0, 0, 0, 0
	for name, a := range l.accounts {
		slow += a.slow
		held += a.units
		waiting += a.waiting.Len()
		watches += a.places
		switch {
		case a.isIdle():
			t.Errorf("the account of %s has no work", name)
		case a.waiting.Len() > l.opts.WaitingPerUser:
			t.Errorf("%d requests of %s wait", a.waiting.Len(), name)
		case (a.turn != nil) != (a.waiting.Len() > 0):
			t.Errorf("%s has a turn without a waiting request, or the other way round", name)
		case a.waiting.Len() > 0 && a.units < l.free:
			t.Errorf("%s waits with %d units, and %d are free", name, a.units, l.free)
		}
	}
	if slow != l.slow || slow > l.opts.Slow {
		t.Errorf("accounts have %d slow lists of %d", slow, l.slow)
	}
	if held != l.opts.Units-l.free || l.free < 0 || waiting != l.waiting || waiting > l.opts.Waiting ||
		watches != l.places || l.requests > l.opts.Units {
		t.Errorf("accounts hold %d units of %d with %d free, %d wait of %d, %d watch of %d", held, l.opts.Units, l.free,
			waiting, l.waiting, watches, l.places)
	}
}

// checkIdle verifies that nothing is left of past requests.
func (l *Limiter) checkIdle(t *testing.T) {
	t.Helper()
	l.check(t)
	if s := l.Stats(); s.InFlight != 0 || s.Requests != 0 || s.Waiting != 0 || s.Watches != 0 || s.Slow != 0 ||
		s.Users != 0 {
		t.Errorf("left: %+v", s)
	}
}

// flood starts n requests of a user at once, which are served for the given time each. A
// rejected request is repeated after a while, until ctx ends.
func flood(
	ctx context.Context, l *Limiter, running *sync.WaitGroup, user string, n int, cost Cost, service time.Duration,
) {
	for range n {
		running.Go(func() {
			for ctx.Err() == nil {
				done, err := l.Admit(ctx, user, cost)
				if err != nil {
					time.Sleep(250 * time.Millisecond)
					continue
				}
				time.Sleep(service)
				done()
			}
		})
	}
}

// politeDelays sends requests of a user one after the other, and returns the longest time
// that one waited.
func politeDelays(ctx context.Context, t *testing.T, l *Limiter, user string, n int) (longest time.Duration) {
	t.Helper()
	for range n {
		began := time.Now()
		done, err := l.Admit(ctx, user, Get)
		if err != nil {
			t.Fatalf("a polite request is rejected: %v, %+v", err, l.Stats())
		}
		longest = max(longest, time.Since(began))
		time.Sleep(time.Millisecond)
		done()
		time.Sleep(7 * time.Millisecond)
	}
	return longest
}

// TestLimiter_oneGreedyUser checks that 10,000 requests of one user do not delay those of
// another, whatever they cost and even if they take forever.
func TestLimiter_oneGreedyUser(t *testing.T) {
	for name, c := range map[string]struct {
		cost    Cost
		service time.Duration
	}{
		"gets": {Get, 10 * time.Millisecond}, "lists": {List(1 << 30), 100 * time.Millisecond},
		"lists that never end": {List(5000), 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(&Options{Units: 64})
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				flood(ctx, l, &running, "greedy", 10_000, c.cost, c.service)
				synctest.Wait()
				l.check(t)
				if longest := politeDelays(ctx, t, l, "polite", 100); longest > 0 {
					t.Errorf("a request of the polite user waits for %v", longest)
				}
				cancel()
				running.Wait()
				l.checkIdle(t)
			})
		})
	}
}

// TestLimiter_manyGreedyUsers checks the delay of a user when others hold all units: at
// most one request of each of them is served first.
func TestLimiter_manyGreedyUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const units, users, service = 8, 40, 10 * time.Millisecond
		l := New(&Options{Units: units, Waiting: 2000})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for u := range users {
			flood(ctx, l, &running, fmt.Sprint("greedy-", u), 250, Get, service)
		}
		synctest.Wait()
		l.check(t)
		// Each turn of all users takes users/units requests one after the other.
		bound := (users/units + 2) * service
		if longest := politeDelays(ctx, t, l, "polite", 100); longest == 0 || longest > bound {
			t.Errorf("a request of the polite user waits for %v, want at most %v", longest, bound)
		}
		cancel()
		running.Wait()
		l.checkIdle(t)
	})
}

// TestLimiter_sharesUnits checks that k users with slow requests leave a share free.
func TestLimiter_sharesUnits(t *testing.T) {
	l := New(&Options{Units: 120, WaitingPerUser: 1, Waiting: 100, MaxWait: time.Nanosecond})
	for k := 1; k <= 5; k++ {
		for err := error(nil); err == nil; {
			_, err = l.Admit(t.Context(), fmt.Sprint("slow-", k), Get)
		}
		if free := l.opts.Units - l.Stats().InFlight; free < 120/(1<<k) {
			t.Errorf("after %d users %d units are free", k, free)
		}
	}
	l.check(t)
	// A list takes the units that are left rather than waiting for more.
	if _, err := l.Admit(t.Context(), "another", List(1e9)); err != nil {
		t.Error(err)
	}
}

// TestLimiter_random checks the invariants after each of many random calls.
func TestLimiter_random(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			l := New(&Options{
				Units: 1 + random.IntN(20), Waiting: 1 + random.IntN(30), WaitingPerUser: 1 + random.IntN(10),
				MaxWait: 50 * time.Millisecond, Watches: 1 + random.IntN(10), WatchStart: 20 * time.Millisecond,
			})
			var running sync.WaitGroup
			for range 2000 {
				user, cost := fmt.Sprint(random.IntN(12)), Cost(random.IntN(8)-1)
				service, patience := time.Duration(random.IntN(40))*time.Millisecond,
					time.Duration(random.IntN(80))*time.Millisecond
				kind, places := random.IntN(4), random.IntN(4)
				running.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					began := time.Now()
					var started, done func()
					var err error
					if kind == 0 {
						started, done, err = l.AdmitWatch(ctx, user, cost, places)
					} else {
						done, err = l.Admit(ctx, user, cost)
					}
					if took := time.Since(began); took > 50*time.Millisecond || took > patience {
						t.Errorf("seed %d: waited for %v with a deadline of %v", seed, took, patience)
					}
					if err != nil {
						return
					}
					time.Sleep(service)
					if kind == 0 && service%2 == 0 {
						started()
					}
					done()
					done()
				})
				if random.IntN(3) == 0 {
					time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond)
				}
				synctest.Wait()
				l.check(t)
			}
			running.Wait()
			l.checkIdle(t)
			s := l.Stats()
			if s.Admitted+s.Rejected.Total() != 2000 || s.Rejected.Full == 0 || s.Rejected.Canceled == 0 {
				t.Errorf("seed %d: %+v", seed, s)
			}
		})
	}
}

// TestLimiter_isFairWhenTheQueueIsFull checks that a user with a short queue displaces the
// last request of the longest queue, and that one with a long queue does not.
func TestLimiter_isFairWhenTheQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&Options{Units: 1, Waiting: 10, WaitingPerUser: 10, MaxWait: time.Hour})
		done, err := l.Admit(t.Context(), "holder", Get)
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan string, 100)
		var running sync.WaitGroup
		send := func(user string) {
			running.Go(func() {
				done, err := l.Admit(t.Context(), user, Get)
				if err != nil {
					results <- user + " rejected"
					return
				}
				results <- user
				time.Sleep(time.Millisecond)
				done()
			})
			synctest.Wait()
		}
		for range 10 {
			send("greedy")
		}
		send("greedy")
		for range 5 {
			send("polite")
		}
		send("polite")
		if s := l.Stats(); s.Waiting != 10 || s.Rejected.Full != 7 {
			t.Errorf("%+v", s)
		}
		done()
		running.Wait()
		close(results)
		var order []string
		for r := range results {
			order = append(order, r)
		}
		// One own request too many of the greedy user, five that the polite user displaces,
		// and one of the polite user that would have made its queue the longest.
		want := strings.Repeat("greedy rejected,", 6) + "polite rejected," + strings.Repeat("greedy,polite,", 5)
		if got := strings.Join(order, ",") + ","; got != want {
			t.Errorf("the order is %s, want %s", got, want)
		}
		l.checkIdle(t)
	})
}

// TestLimiter_rejects checks the status of a rejection, and that waiting ends with the
// client and with time.
func TestLimiter_rejects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&Options{Units: 1})
		done, err := l.Admit(t.Context(), "a", Get)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = l.Admit(t.Context(), "b", Get)
		if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds < 1 ||
			time.Since(began) != l.opts.MaxWait {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began = time.Now()
		if _, err := l.Admit(ctx, "b", Get); !apierrors.IsTooManyRequests(err) ||
			time.Since(began) != 10*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if s := l.Stats(); s.Rejected != (Rejections{Late: 1, Canceled: 1}) || s.Waiting != 0 || s.InFlight != 1 ||
			s.Users != 1 {
			t.Errorf("%+v", s)
		}
		done()
		l.checkIdle(t)
	})
}

// TestLimiter_watches checks that watches are bounded, hold units only while they start,
// and leave places for other users.
func TestLimiter_watches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&Options{Units: 40, Watches: 10, WatchesPerUser: 8})
		var ends []func()
		open := func(user string) int {
			for n := 0; ; n++ {
				started, done, err := l.AdmitWatch(t.Context(), user, List(400), 1)
				if err != nil {
					if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) ||
						seconds < 5 {
						t.Error(err)
					}
					return n
				}
				ends = append(ends, done)
				if n%2 == 0 {
					started()
				}
			}
		}
		for i, want := range []int{5, 3, 1, 1, 0} {
			if n := open(fmt.Sprint("user-", i)); n != want {
				t.Errorf("user %d has %d watches, want %d", i, n, want)
			}
		}
		if s := l.Stats(); s.InFlight != 3*5 || s.Watches != 10 || s.Rejected.Watches != 5 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := l.Stats(); s.InFlight != 0 || s.Watches != 10 {
			t.Errorf("after their start: %+v", s)
		}
		for _, end := range ends {
			end()
		}
		l.checkIdle(t)
		l.opts.WatchesPerUser = 2
		if n := open("user"); n != 2 {
			t.Errorf("%d watches, want 2", n)
		}
	})
}

// TestLimiter_longSelectors has watches that take more memory than others.
func TestLimiter_longSelectors(t *testing.T) {
	l := New(&Options{Watches: 2000, WatchesPerUser: 1000})
	watch := func(user string, selector int) (func(), error) {
		started, done, err := l.AdmitWatch(t.Context(), user, Get, Places(selector))
		if err == nil {
			started()
		}
		return done, err
	}
	var all []func()
	for {
		done, err := watch("long", 60_000)
		if err != nil {
			break
		}
		all = append(all, done)
	}
	if s := l.Stats(); len(all) != 1000/Places(60_000) || s.Watches != len(all) {
		t.Errorf("%d watches with a selector of 60 KB, %+v", len(all), s)
	}
	for range 500 {
		done, err := watch("short", 20)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, done)
	}
	for _, done := range all {
		done()
	}
	l.opts.WatchesPerUser = 10
	done, err := watch("long", 60_000)
	if err != nil {
		t.Fatal("the only watch of a user: ", err)
	}
	if _, err := watch("long", 20); err == nil {
		t.Error("another watch beside one that takes more than the limit")
	}
	done()
	l.checkIdle(t)
}

// TestLimiter_slowClients checks that lists whose clients are slow give their units to others
// after the time of their work, that a limited number of them does so, and that a list which
// needs long for its work keeps them for longer.
func TestLimiter_slowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&Options{Units: 64, MaxCost: 8, Slow: 6})
		var ends []func()
		admit := func(user string, objects int) {
			t.Helper()
			done, err := l.Admit(t.Context(), user, List(objects))
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, done)
		}
		large := 100 * 1000 // 1,001 units: 4 s
		for range 3 {
			admit("a", 1000)
		}
		admit("a", large)
		if s := l.Stats(); s.InFlight != 32 || s.Slow != 0 {
			t.Errorf("%+v", s)
		}
		began := time.Now()
		admit("a", 1000) // waits, as a has half of the units
		if took := time.Since(began); took != leastTime {
			t.Errorf("the fifth list waited %v", took)
		}
		synctest.Wait()
		l.check(t)
		if s := l.Stats(); s.Slow != 3 || s.InFlight != 16 {
			t.Errorf("after a second: %+v", s)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		l.check(t)
		// The user has as many slow lists as are free, so the others keep their units.
		if s := l.Stats(); s.Slow != 3 || s.InFlight != 16 {
			t.Errorf("after their work: %+v", s)
		}
		admit("b", large)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := l.Stats(); s.Slow != 3 {
			t.Errorf("a list that still works is slow: %+v", s)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s := l.Stats(); s.Slow != 4 || s.InFlight != 16 {
			t.Errorf("the list of another user: %+v", s)
		}
		for _, end := range ends {
			end()
			end()
			l.check(t)
		}
		l.checkIdle(t)
	})
}

// TestLimiter_longNames checks that names do not take more memory than the limit.
func TestLimiter_longNames(t *testing.T) {
	l := New(nil)
	long := strings.Repeat("x", 1<<16)
	for _, name := range []string{long, long, long + "y", "short"} {
		if _, err := l.Admit(t.Context(), name, Get); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Stats().Users; n != 3 {
		t.Errorf("%d users, want 3", n)
	}
	for name := range l.accounts {
		if len(name) > maxName {
			t.Errorf("a name of %d bytes is kept", len(name))
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	l := New(nil)
	b.ReportAllocs()
	for b.Loop() {
		done, err := l.Admit(b.Context(), "user", Get)
		if err != nil {
			b.Fatal(err)
		}
		done()
	}
}

// TestLimiter_keepsTheAccountOfReturningUsers checks that a displaced request, which
// wakes late, does not delete the account that its user has by then.
func TestLimiter_keepsTheAccountOfReturningUsers(t *testing.T) {
	l := New(nil)
	l.mu.Lock()
	former := l.accountLocked("user")
	l.dropIdleLocked(former)
	l.mu.Unlock()
	if _, err := l.Admit(t.Context(), "user", Get); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.dropIdleLocked(former)
	l.mu.Unlock()
	l.check(t)
}
