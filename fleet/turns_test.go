// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/reflector"
)

// lists counts, for one gate, the lists that run and have never stalled.
type lists struct {
	t      *testing.T
	name   string
	budget int
	// patience is how long a list may be idle before it counts as stalled.
	patience time.Duration

	mu   sync.Mutex
	all  map[*running]struct{}
	most int
}

// running is a running list.
type running struct {
	last    time.Time // when something arrived last
	working bool
	stalled bool
}

func (l *lists) check() {
	n := 0
	for r := range l.all {
		if !r.working && time.Since(r.last) >= l.patience {
			r.stalled = true
		}
		if !r.stalled {
			n++
		}
	}
	l.most = max(l.most, n)
	if n > l.budget {
		l.t.Errorf("%s: %d lists at once that have not stalled, for a budget of %d", l.name, n, l.budget)
	}
}

func (l *lists) note(r *running, working bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	l.all[r] = struct{}{}
	r.last, r.working = time.Now(), working
	l.check()
}

func (l *lists) end(r *running) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, r)
}

func turnsSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WATERSHED_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("WATERSHED_SEED=%d", seed)
	return seed
}

// TestTurns_holdTheBudget runs lists of random lengths, some of which stall, in clusters
// that share a fleet's gate. Apart from stalled lists, a cluster must never run more
// lists than its budget, nor the fleet more than its own limit, and all lists must end.
func TestTurns_holdTheBudget(t *testing.T) {
	seed := turnsSeed(t)
	for run := range 100 {
		synctest.Test(t, func(t *testing.T) { randomTurns(t, rand.New(rand.NewPCG(seed, uint64(run)))) })
		if t.Failed() {
			t.Fatalf("in run %d of WATERSHED_SEED=%d", run, seed)
		}
	}
}

func randomTurns(t *testing.T, rng *rand.Rand) {
	clusters, budget, whole := 1+rng.IntN(6), 1+rng.IntN(4), 1+rng.IntN(8)
	stalls, refusals := rng.IntN(3) == 0, rng.IntN(3) == 0
	fleet := newGate(whole, fleetPatience)
	inFleet := &lists{t: t, name: "fleet", budget: whole, patience: fleetPatience, all: map[*running]struct{}{}}
	ended := make(chan struct{}, 1000)
	total := 0
	for n := range clusters {
		to := &server{gate: newGate(budget, clusterPatience), fleetGate: fleet, account: newAccount("", Limits{}.withDefaults(), &pressure{})}
		inCluster := &lists{t: t, name: fmt.Sprint("cluster ", n), budget: budget, patience: clusterPatience, all: map[*running]struct{}{}}
		for range 1 + rng.IntN(20) {
			total++
			s := &source{server: to, used: to.account.open()}
			s.expected.Store(1) // no count request
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			go func() {
				defer func() { ended <- struct{}{} }()
				time.Sleep(time.Duration(own.IntN(3000)) * time.Millisecond)
				done, err := s.wait(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				a, b := &running{}, &running{}
				defer inCluster.end(a)
				defer inFleet.end(b)
				note := func(working bool) {
					inCluster.note(a, working)
					inFleet.note(b, working)
				}
				note(false)
				if refusals && own.IntN(8) == 0 {
					to.heed(&reflector.Error{Reason: reflector.Busy, RetryAfter: time.Duration(own.IntN(4000)) * time.Millisecond, Err: errors.New("busy")})
					return
				}
				for range own.IntN(12) {
					idle := time.Duration(own.IntN(900)) * time.Millisecond
					if stalls && own.IntN(4) == 0 {
						idle = time.Duration(own.IntN(15)) * time.Second
					}
					time.Sleep(idle)
					s.turn.fleet.received()
					s.turn.cluster.received()
					note(true)
					time.Sleep(time.Duration(own.IntN(3000)) * time.Millisecond)
					s.awaits()
					note(false)
				}
			}()
		}
	}
	limit := time.After(2 * time.Hour)
	for n := range total {
		select {
		case <-ended:
		case <-limit:
			t.Fatalf("%d of %d lists have ended after two hours", n, total)
		}
	}
	if fleet.active != 0 {
		t.Errorf("%d places of the fleet are taken in the end", fleet.active)
	}
}

// TestTurns_waitingForTheFleetIsNotStalling has one cluster wait while others are read.
func TestTurns_waitingForTheFleetIsNotStalling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newGate(8, fleetPatience)
		var others []*pass
		for range 8 {
			p := enter(t, fleet)
			p.received()
			others = append(others, p)
		}
		to := &server{gate: newGate(4, clusterPatience), fleetGate: fleet, account: newAccount("", Limits{}.withDefaults(), &pressure{})}
		in := &lists{t: t, name: "cluster", budget: 4, patience: clusterPatience, all: map[*running]struct{}{}}
		var all sync.WaitGroup
		for range 40 {
			s := &source{server: to, used: to.account.open()}
			s.expected.Store(1)
			all.Go(func() {
				done, err := s.wait(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				r := &running{}
				s.turn.fleet.received()
				s.turn.cluster.received()
				in.note(r, true)
				time.Sleep(10 * time.Second)
				in.end(r)
				done()
			})
		}
		time.Sleep(time.Minute)
		if in.most > 0 {
			t.Error("a list has begun while the fleet was full")
		}
		for _, p := range others {
			p.leave()
		}
		took(t, 100*time.Second, all.Wait)
	})
}

// TestTurns_heedRetryAfterWhileTheFleetIsFull has a cluster ask for a pause while one of
// its lists waits for the fleet.
func TestTurns_heedRetryAfterWhileTheFleetIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newGate(1, fleetPatience)
		to := &server{gate: newGate(4, clusterPatience), fleetGate: fleet, account: newAccount("", Limits{}.withDefaults(), &pressure{})}
		other := enter(t, fleet)
		other.received()
		s := &source{server: to, used: to.account.open()}
		s.expected.Store(1)
		go func() {
			time.Sleep(time.Second)
			to.heed(&reflector.Error{Reason: reflector.Busy, RetryAfter: 30 * time.Second, Err: errors.New("busy")})
			time.Sleep(time.Second)
			other.leave()
		}()
		took(t, 31*time.Second, func() {
			done, err := s.wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done()
		})
	})
}

// TestGate_countsAListThatGoesOn has a list stall and continue: no other list is admitted
// until there is room for it again.
func TestGate_countsAListThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, time.Second)
		first := enter(t, g)
		time.Sleep(2 * time.Second)
		second := enter(t, g)
		second.received()
		first.received() // continues
		second.leave()
		go func() {
			time.Sleep(time.Minute)
			first.leave()
		}()
		took(t, time.Minute, func() { enter(t, g).leave() })
	})
}

// TestGate_isBusyWhileSomethingComes checks the condition that settling waits for.
func TestGate_isBusyWhileSomethingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4, time.Second)
		want := func(want bool, when string) {
			t.Helper()
			if g.busy() != want {
				t.Errorf("busy is %t %s", !want, when)
			}
		}
		want(false, "before anything")
		p := enter(t, g)
		want(false, "while nothing has come")
		p.received()
		want(true, "when something has come")
		p.awaits()
		want(true, "while more is expected")
		time.Sleep(3 * time.Second)
		want(false, "when nothing comes any more")
		p.received()
		want(true, "when more has come after all")
		p.leave()
		want(false, "in the end")
		// A cluster that does not respond is retried many times.
		for range 10 {
			p := enter(t, g)
			time.Sleep(500 * time.Millisecond)
			want(false, "while a server does not answer")
			p.leave()
		}
	})
}
