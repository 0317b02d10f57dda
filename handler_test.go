// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/wire"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 is another one each time")

func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("again: go test . -run '^%s$' -seed=%d", t.Name(), s)
	return rand.New(rand.NewPCG(s, 1))
}

// TestHandler_thatWaitsKeepsNothing checks that the decoded states of a change can be freed
// when the handler has received them and waits for the next change.
func TestHandler_thatWaitsKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", nil)
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
		var old weak.Pointer[corev1.Pod] // only handlers have the old state
		pods.Handle(watershed.Handler[*corev1.Pod]{Update: func(was, _ *corev1.Pod) { old = weak.Make(was) }})
		running(t, pods.Run)
		<-pods.Synced()
		synctest.Wait()
		s.put("shop/a", nil)
		synctest.Wait()
		if old == (weak.Pointer[corev1.Pod]{}) {
			t.Fatal("the handler was not called")
		}
		runtime.GC()
		if old.Value() != nil {
			t.Error("the old state is still in memory")
		}
	})
}

func TestHandler_thatPanicsHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", nil)
		var logged trace
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
			Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		var other trace
		pods.Handle(watershed.Handler[*corev1.Pod]{
			Name:   "bad",
			Add:    func(*corev1.Pod, bool) { panic("add") },
			Update: func(_, _ *corev1.Pod) { var p *corev1.Pod; p.Name = "boom" },
			Delete: func(*corev1.Pod, bool) { panic("delete") },
		})
		pods.Handle(other.handler())
		running(t, pods.Run)
		<-pods.Synced()
		synctest.Wait()
		s.put("shop/a", nil)
		s.delete("shop/a")
		synctest.Wait()
		expect.Equal(t, other.take(), []string{
			"add a@101 initial=true", "update a@102 from 101", "delete a@103 seen=true",
		})
		var bad watershed.HandlerStatus
		for _, h := range pods.Status().Handlers {
			if h.Name == "bad" {
				bad = h
			}
		}
		expect.Equal(t, bad.Panics, 3)
		expect.Equal(t, bad.Delivered, 0)
		expect.Equal(t, len(logged.take()), 3)
	})
}

func TestHandler_panicsGoToItsOwnFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", nil)
		var logged, panicked, tr trace
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
			Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		h := tr.handler()
		h.Add = func(*corev1.Pod, bool) { panicInHandler() }
		h.Panicked = func(value any) {
			panicked.add("%v in panicInHandler: %v", value, strings.Contains(string(debug.Stack()), "panicInHandler"))
		}
		r := pods.Handle(h)
		running(t, pods.Run)
		<-r.Synced()
		s.put("shop/a", nil)
		synctest.Wait()
		expect.Equal(t, panicked.take(), []string{"boom in panicInHandler: true"})
		expect.Equal(t, tr.take(), []string{"update a@102 from 101"})
		expect.Equal(t, r.Status().Panics, 1)
		expect.Equal(t, logged.take(), nil)
	})
}

func panicInHandler() { panic("boom") }

// Write makes a trace usable as the output of a logger.
func (tr *trace) Write(p []byte) (int, error) {
	tr.add("%s", p)
	return len(p), nil
}

func TestHandler_closesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		pods := watershed.FromSource[*corev1.Pod](s, nil)
		var r *watershed.Registration
		calls := 0
		r = pods.Handle(watershed.Handler[*corev1.Pod]{Add: func(*corev1.Pod, bool) {
			calls++
			r.Close()
			r.Close()
		}})
		running(t, pods.Run)
		<-r.Synced()
		s.put("shop/a", nil)
		s.put("shop/b", nil)
		<-r.Done()
		synctest.Wait()
		expect.Equal(t, calls, 1)
		expect.Equal(t, len(pods.Status().Handlers), 0)
	})
}

func TestHandler_closedBeforeTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", nil)
		pods := watershed.FromSource[*corev1.Pod](s, nil)
		var tr trace
		r := pods.Handle(tr.handler())
		r.Close()
		<-r.Done()
		running(t, pods.Run)
		synctest.Wait()
		expect.Equal(t, tr.take(), nil)
	})
}

func TestResync_givesEverythingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", nil)
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Resync: time.Minute, Reflector: patient})
		var often, seldom, never trace
		pods.Handle(often.handler())
		h := seldom.handler()
		h.Resync = time.Hour
		pods.Handle(h)
		h = never.handler()
		h.Resync = -1
		pods.Handle(h)
		running(t, pods.Run)
		<-pods.Synced()
		synctest.Wait()
		for _, tr := range []*trace{&often, &seldom, &never} {
			expect.Equal(t, tr.take(), []string{"add a@101 initial=true"})
		}
		time.Sleep(90 * time.Second)
		s.put("shop/a", nil)
		time.Sleep(time.Minute)
		expect.Equal(t, often.take(), []string{
			"update a@101 from 101", "update a@102 from 101", "update a@102 from 102",
		})
		expect.Equal(t, seldom.take(), []string{"update a@102 from 101"})
		expect.Equal(t, never.take(), []string{"update a@102 from 101"})
		time.Sleep(time.Hour)
		expect.Equal(t, seldom.take(), []string{"update a@102 from 102"})
		expect.Equal(t, never.take(), nil)
	})
}

// TestResync_neverGoesBack resyncs a handler that is always behind.
func TestResync_neverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
		last, syncs := map[string]uint64{}, 0
		pods.Handle(watershed.Handler[*corev1.Pod]{
			Resync: 100 * time.Millisecond,
			Update: func(old, now *corev1.Pod) {
				time.Sleep(time.Millisecond)
				was, is := number(old), number(now)
				if is < last[now.Name] || was > is {
					t.Errorf("%s went back from %d to %d (old is %d)", now.Name, last[now.Name], is, was)
				}
				if was == is {
					syncs++
				}
				last[now.Name] = is
			},
		})
		stop := running(t, pods.Run)
		<-pods.Synced()
		for i := range 20_000 {
			s.put(fmt.Sprintf("shop/p%d", i%20), nil)
			time.Sleep(time.Millisecond / 2)
		}
		time.Sleep(time.Minute)
		stop()
		if syncs < 1000 {
			t.Errorf("%d objects were given again, want more", syncs)
		}
		expect.Equal(t, len(last), 20)
	})
}

func number(p *corev1.Pod) uint64 {
	n, _ := strconv.ParseUint(p.ResourceVersion, 10, 64)
	return n
}

// reader records the changes that a reader receives, and checks them.
type reader struct {
	t     *testing.T
	name  string
	state map[string]*wire.Object
}

func (r *reader) see(typ delta.Type, key string, old, now *wire.Object) {
	had := r.state[key]
	switch {
	case typ == delta.Added && had != nil, typ != delta.Added && had == nil:
		r.t.Errorf("%s: %s of %s, of which it knew %v", r.name, typ, key, had)
	case typ != delta.Added && old != had:
		r.t.Errorf("%s: %s of %s from %v, but it received %v last", r.name, typ, key, old, had)
	case typ == delta.Updated && now.Version() <= had.Version():
		r.t.Errorf("%s: %s goes back from %v to %v", r.name, key, had, now)
	}
	r.state[key] = now
	if typ == delta.Deleted {
		delete(r.state, key)
	}
}

// TestReaders_slowOnesEndWithTheTruth has readers of all speeds follow random changes,
// with a window that only the fastest stay in.
func TestReaders_slowOnesEndWithTheTruth(t *testing.T) {
	rng := random(t)
	rounds := 10
	if testing.Short() {
		rounds = 2
	}
	expired := uint64(0)
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			pods := watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{Window: 1, Reflector: patient})
			stop := running(t, pods.Run)
			var readers []*reader
			var handlers []*watershed.Registration
			for i := range 5 {
				r := &reader{t: t, name: fmt.Sprint("reader ", i), state: map[string]*wire.Object{}}
				readers = append(readers, r)
				naps := rand.New(rand.NewPCG(rng.Uint64(), 1))
				nap := func() {
					if naps.IntN(500) < i {
						time.Sleep(time.Duration(naps.Int64N(int64(time.Second) * int64(i))))
					}
				}
				handlers = append(handlers, pods.Handle(watershed.Handler[*wire.Object]{
					Name: r.name,
					Add:  func(o *wire.Object, _ bool) { nap(); r.see(delta.Added, o.Key(), nil, o) },
					Update: func(old, now *wire.Object) {
						nap()
						r.see(delta.Updated, now.Key(), old, now)
					},
					Delete: func(o *wire.Object, _ bool) {
						nap()
						r.see(delta.Deleted, o.Key(), r.state[o.Key()], o)
					},
				}))
			}
			keys := 1 + rng.IntN(3000)
			for range 20_000 {
				key := fmt.Sprintf("shop/p%d", rng.IntN(keys))
				if _, ok := s.pods[key]; ok && rng.IntN(3) == 0 {
					s.delete(key)
				} else {
					s.put(key, nil)
				}
				if rng.IntN(50) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(10 * time.Minute)
			stop()
			for i, r := range readers {
				r.wantState(s.state())
				expired += handlers[i].Status().Expired
			}
		})
		if t.Failed() {
			return
		}
	}
	if expired == 0 {
		t.Error("no reader ever fell out of the window: the test shows nothing")
	}
	t.Logf("readers fell out of the window %d times", expired)
}

// TestHandler_isBehindWhileItReceivesDifferences reads the status of a handler that has left
// the window, in each of the calls that bring it up to date.
func TestHandler_isBehindWhileItReceivesDifferences(t *testing.T) {
	const pods = 50
	s := newServer()
	padding := string(make([]byte, 20_000))
	pad := func(p *corev1.Pod) { p.Annotations = map[string]string{"padding": padding} }
	for i := range pods {
		s.put(fmt.Sprintf("shop/p%02d", i), pad)
	}
	informer := watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{Window: 1, Reflector: patient})
	asleep, wake := make(chan struct{}), make(chan struct{})
	var handler *watershed.Registration
	var behind []uint64
	var sleeps sync.Once
	note := func() {
		sleeps.Do(func() { close(asleep); <-wake })
		behind = append(behind, handler.Status().Behind)
	}
	handler = informer.Handle(watershed.Handler[*wire.Object]{
		Update: func(_, _ *wire.Object) { note() },
		Delete: func(_ *wire.Object, _ bool) { note() },
	})
	stop := running(t, informer.Run)
	<-handler.Synced()
	s.put("shop/p49", pad)
	<-asleep
	s.delete("shop/p00") // comes first in the differences, and has the newest revision
	for range 300 {
		for i := 1; i < pods; i++ {
			s.put(fmt.Sprintf("shop/p%02d", i), pad)
		}
	}
	expect.Soon(t, "the informer has every change", func() bool { return informer.Status().Version == s.version })
	close(wake)
	expect.Soon(t, "the handler is up to date", func() bool { return handler.Status().Behind == 0 })
	stop()
	expect.Equal(t, handler.Status().Expired > 0, true)
	for i, n := range behind[:len(behind)-1] {
		if n == 0 {
			t.Errorf("after call %d of %d the handler is said to have received everything", i, len(behind))
		}
	}
}

// TestHandler_thatSleepsForever makes a million changes while a handler sleeps.
func TestHandler_thatSleepsForever(t *testing.T) {
	if testing.Short() {
		t.Skip("a million changes take a while")
	}
	const (
		pods      = 1000
		size      = 2400
		queue     = 2 << 20
		byDefault = 64 << 20
	)
	t.Run("default window", func(t *testing.T) {
		if growth := sleeper(t, 0, pods, 1_000_000); growth >= byDefault {
			t.Errorf("heap grew by %d bytes, more than the window", growth)
		}
	})
	t.Run("small window", func(t *testing.T) {
		// Only the states that the handler saw last are kept for it.
		if growth := sleeper(t, 8<<20, pods, 100_000); growth >= 8<<20+pods*size+queue {
			t.Errorf("heap grew by %d bytes, more than the window, one older copy and the queue", growth)
		}
	})
}

// sleeper makes changes while one handler sleeps and another does not, and returns by
// how much the live heap grew.
func sleeper(t *testing.T, window int64, size, changes int) int64 {
	s := newServer()
	padding := string(make([]byte, 2000))
	pad := func(p *corev1.Pod) { p.Annotations = map[string]string{"padding": padding} }
	for i := range size {
		s.put(fmt.Sprintf("shop/p%d", i), pad)
	}
	pods := watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{Window: window, Reflector: patient})
	asleep, wake := make(chan struct{}), make(chan struct{})
	readers := []*reader{
		{t: t, name: "sleeper", state: map[string]*wire.Object{}},
		{t: t, name: "other", state: map[string]*wire.Object{}},
	}
	var handlers []*watershed.Registration
	for _, r := range readers {
		handlers = append(handlers, pods.Handle(watershed.Handler[*wire.Object]{
			Name: r.name,
			Add:  func(o *wire.Object, _ bool) { r.see(delta.Added, o.Key(), nil, o) },
			Update: func(old, now *wire.Object) {
				if r.name == "sleeper" {
					select {
					case <-wake:
					default:
						close(asleep)
						<-wake
					}
				}
				r.see(delta.Updated, now.Key(), old, now)
			},
			Delete: func(o *wire.Object, _ bool) { r.see(delta.Deleted, o.Key(), r.state[o.Key()], o) },
		}))
	}
	slow, quick := handlers[0], handlers[1]
	stop := running(t, pods.Run)
	<-slow.Synced()
	<-quick.Synced()
	s.put("shop/p0", pad)
	<-asleep
	before := liveHeap()
	rng := random(t)
	delay := time.Duration(0)
	for i := range changes {
		key := fmt.Sprintf("shop/p%d", rng.IntN(size))
		if _, ok := s.pods[key]; ok && rng.IntN(10) == 0 {
			s.delete(key)
		} else {
			s.put(key, pad)
		}
		if i%1000 == 999 { // a rate that the machine can sustain: the test does not measure the socket
			began := time.Now()
			expect.Soon(t, "the other handler has all changes", func() bool {
				return quick.Status().Behind == 0 && pods.Status().Version >= s.version
			})
			delay = max(delay, time.Since(began))
		}
	}
	growth := liveHeap() - before
	t.Logf("%d changes: heap grew by %.1f MiB; the other handler was at most %v behind", changes,
		float64(growth)/(1<<20), delay)
	if delay > 5*time.Second {
		t.Errorf("the other handler was %v behind", delay)
	}
	close(wake)
	expect.Soon(t, "both handlers have all changes", func() bool {
		return slow.Status().Behind == 0 && quick.Status().Behind == 0
	})
	expect.Equal(t, slow.Status().Expired > 0, true)
	stop()
	for _, r := range readers {
		r.wantState(s.state())
	}
	return growth
}

// wantState compares the state that the reader has received with the server's.
func (r *reader) wantState(want map[string]string) {
	r.t.Helper()
	got := map[string]string{}
	for key, o := range r.state {
		got[key] = o.ResourceVersion()
	}
	if !maps.Equal(got, want) {
		r.t.Errorf("%s ends with %d pods, the server with %d", r.name, len(got), len(want))
	}
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
