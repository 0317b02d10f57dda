// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

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

	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/internal/admission"
	"github.com/watershed-project/watershed/reflector"
)

// enter takes a place in a gate for a list that begins.
func enter(t *testing.T, g *admission.Gate) *admission.Pass {
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
	fleet := admission.NewGate(whole, FleetPatience)
	inFleet := &lists{t: t, name: "fleet", budget: whole, patience: FleetPatience, all: map[*running]struct{}{}}
	ended := make(chan struct{}, 1000)
	total := 0
	for n := range clusters {
		to := &Server{
			gate:      admission.NewGate(budget, ClusterPatience),
			fleetGate: fleet,
			account:   quota.NewAccount("", quota.Limits{Objects: 5_000_000, Bytes: 8 << 30}, &quota.Process{}),
		}
		inCluster := &lists{
			t:        t,
			name:     fmt.Sprint("cluster ", n),
			budget:   budget,
			patience: ClusterPatience,
			all:      map[*running]struct{}{},
		}
		for range 1 + rng.IntN(20) {
			total++
			s := &Source{server: to, used: to.account.Open()}
			s.expected.Store(1) // no count request
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			go func() {
				defer func() { ended <- struct{}{} }()
				time.Sleep(time.Duration(own.IntN(3000)) * time.Millisecond)
				done, err := s.Wait(t.Context())
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
					to.DelayListsAfter(&reflector.Error{
						Reason:     reflector.Busy,
						RetryAfter: time.Duration(own.IntN(4000)) * time.Millisecond,
						Err:        errors.New("busy"),
					})
					return
				}
				for range own.IntN(12) {
					idle := time.Duration(own.IntN(900)) * time.Millisecond
					if stalls && own.IntN(4) == 0 {
						idle = time.Duration(own.IntN(15)) * time.Second
					}
					time.Sleep(idle)
					s.turn.fleet.Received()
					s.turn.cluster.Received()
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
	if active, _ := fleet.Stats(); active != 0 {
		t.Errorf("%d places of the fleet are taken in the end", active)
	}
}

// TestTurns_waitingForTheFleetIsNotStalling has one cluster wait while others are read.
func TestTurns_waitingForTheFleetIsNotStalling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := admission.NewGate(8, FleetPatience)
		var others []*admission.Pass
		for range 8 {
			p := enter(t, fleet)
			p.Received()
			others = append(others, p)
		}
		to := &Server{
			gate:      admission.NewGate(4, ClusterPatience),
			fleetGate: fleet,
			account:   quota.NewAccount("", quota.Limits{Objects: 5_000_000, Bytes: 8 << 30}, &quota.Process{}),
		}
		in := &lists{t: t, name: "cluster", budget: 4, patience: ClusterPatience, all: map[*running]struct{}{}}
		var all sync.WaitGroup
		for range 40 {
			s := &Source{server: to, used: to.account.Open()}
			s.expected.Store(1)
			all.Go(func() {
				done, err := s.Wait(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				r := &running{}
				s.turn.fleet.Received()
				s.turn.cluster.Received()
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
			p.Leave()
		}
		took(t, 100*time.Second, all.Wait)
	})
}

// TestTurns_heedRetryAfterWhileTheFleetIsFull has a cluster ask for a pause while one of
// its lists waits for the fleet.
func TestTurns_heedRetryAfterWhileTheFleetIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := admission.NewGate(1, FleetPatience)
		to := &Server{
			gate:      admission.NewGate(4, ClusterPatience),
			fleetGate: fleet,
			account:   quota.NewAccount("", quota.Limits{Objects: 5_000_000, Bytes: 8 << 30}, &quota.Process{}),
		}
		other := enter(t, fleet)
		other.Received()
		s := &Source{server: to, used: to.account.Open()}
		s.expected.Store(1)
		go func() {
			time.Sleep(time.Second)
			to.DelayListsAfter(&reflector.Error{
				Reason: reflector.Busy, RetryAfter: 30 * time.Second, Err: errors.New("busy"),
			})
			time.Sleep(time.Second)
			other.Leave()
		}()
		took(t, 31*time.Second, func() {
			done, err := s.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done()
		})
	})
}
