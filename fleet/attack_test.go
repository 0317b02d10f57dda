// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/reflector"
)

// attack is a fleet with a hostile cluster, called bad, and a healthy one, called good.
type attack struct {
	t    *testing.T
	f    *fleet.Fleet
	bad  *fleet.Member
	pods *fleet.View[*corev1.Pod]
	good *simulated.Server
	// most is the largest heap so far, less the heap before, in bytes. slowest has the
	// times of reads of the healthy cluster, and alone those before the attack.
	most           atomic.Int64
	slowest, alone []time.Duration
	// window is how long reads are measured before the attack and from its beginning on.
	// joined is that beginning, in nanoseconds since 1970.
	window time.Duration
	joined atomic.Int64
}

func newAttack(t *testing.T, h *hostile, opts fleet.Options) *attack {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	a := &attack{t: t, window: attackWindow(t), good: simulate(t, &simulated.Options{Clusters: 1, Pods: 200})}
	r := newRoster()
	r.set("good", a.good.Cluster(0).Config())
	opts.Logger = quiet
	if opts.Resources == nil {
		opts.Resources = []string{"pods", "*.x.example.com"}
	}
	a.f = start(t, r, &opts)
	expect.Eventually(t, 10*time.Second, func() error {
		if m, ok := a.f.Member("good"); !ok || m.Status().State != fleet.Live {
			return errors.New("the healthy cluster is not live")
		}
		return nil
	})
	var err error
	if a.pods, err = fleet.Of[*corev1.Pod](a.f); err != nil {
		t.Fatal(err)
	}
	a.measure()
	time.Sleep(a.window) // reads before the attack
	a.joined.Store(time.Now().UnixNano())
	r.set("bad", &rest.Config{Host: server.URL})
	expect.Eventually(t, 5*time.Second, func() error {
		var ok bool
		if a.bad, ok = a.f.Member("bad"); !ok {
			return errors.New("no hostile cluster")
		}
		return nil
	})
	return a
}

// measure records the heap and the times of reads until the test ends.
func (a *attack) measure() {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			a.most.Store(max(a.most.Load(), int64(m.HeapAlloc)-int64(before.HeapAlloc)))
			began := time.Now()
			n := 0
			for range a.pods.In("good").All() {
				n++
			}
			if took := time.Since(began); a.joined.Load() > 0 {
				a.slowest = append(a.slowest, took)
			} else {
				a.alone = append(a.alone, took)
			}
			if n != 200 {
				a.t.Errorf("%d pods of the healthy cluster", n)
				return
			}
		}
	})
	a.t.Cleanup(func() {
		time.Sleep(a.window - time.Since(time.Unix(0, a.joined.Load()))) // reads during the attack
		close(end)
		wg.Wait()
		p99, alone := percentile99(a.slowest), percentile99(a.alone)
		a.t.Logf("the heap grew by at most %d MB; p99 of %d reads of 200 pods %v, before the attack %v",
			a.most.Load()>>20, len(a.slowest), p99, alone)
		if a.window > 0 && p99 > max(2*alone, 20*time.Millisecond) { // noise
			a.t.Errorf("p99 of reads is %v, and %v before the attack", p99, alone)
		}
		if p99 > 5*time.Second { // the machine may be busy with other tests
			a.t.Errorf("p99 of reads is %v", p99)
		}
	})
}

// attackWindow returns how long reads are compared before and during an attack:
// WATERSHED_ATTACK, which make attack sets, turns that on for those that go on for some time.
func attackWindow(t *testing.T) time.Duration {
	for _, name := range []string{"/endless", "/large_objects", "/gzip_bomb", "_watchFlood"} {
		if os.Getenv("WATERSHED_ATTACK") != "" && strings.HasSuffix(t.Name(), name) {
			return 30 * time.Second
		}
	}
	return 0
}

func percentile99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// refused waits until the hostile cluster is reported with a text, and checks that the
// heap is within a bound and the healthy cluster live.
func (a *attack) refused(text string, megabytes int64) fleet.Status {
	a.t.Helper()
	var s fleet.Status
	expect.Eventually(a.t, 20*time.Second, func() error {
		s = a.bad.Status()
		all := fmt.Sprint(s.Err)
		for _, f := range s.Failing {
			all += fmt.Sprint(f.Reflector.Err)
		}
		if !strings.Contains(all, text) {
			return fmt.Errorf("%s: %.500s", s, all)
		}
		if len(all) > 10<<10 {
			return fmt.Errorf("the error has %d bytes", len(all))
		}
		return nil
	})
	a.healthy(megabytes)
	return s
}

func (a *attack) healthy(megabytes int64) {
	a.t.Helper()
	if most := a.most.Load() >> 20; most > megabytes {
		a.t.Errorf("the heap grew by %d MB, want at most %d", most, megabytes)
	}
	if m, _ := a.f.Member("good"); m.Status().State != fleet.Live {
		a.t.Errorf("the healthy cluster is %s", m.Status())
	}
}

// listOnly reads states as lists.
var listOnly = reflector.Options{ListOnly: true}
