// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/expect"
)

func TestHandler_beforeAndAfterTheStart(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", "x"), pod("2", ""))
		i := subject.pods(source)
		early, late := &recorder{}, &recorder{}
		r := join(t, i, early)
		if r.HasSynced() {
			t.Error("it has synced, and the informer does not run")
		}
		synced(t, i)
		expect.Soon(t, "the handler's sync", r.HasSynced)
		early.expect(t, "add 1 x*", "add 2 *")
		r = join(t, i, late)
		expect.Soon(t, "the late handler's sync", r.HasSynced)
		late.expect(t, "add 1 x*", "add 2 *")
		source.Add(pod("3", ""))
		source.Modify(pod("1", "y"))
		source.Delete(pod("2", ""))
		for _, w := range []*recorder{early, late} {
			w.expect(t, "add 3", "update 1 x>y", "delete 2")
		}
		if got := has(i); got != "1=y 3" {
			t.Errorf("the store has %s", got)
		}
	})
}

func TestHandler_removed(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t)
		i := subject.pods(source)
		stays, goes := &recorder{}, &recorder{}
		other, r := join(t, i, stays), join(t, i, goes)
		synced(t, i, other, r)
		source.Add(pod("1", ""))
		stays.expect(t, "add 1")
		goes.expect(t, "add 1")
		for range 3 { // repeated calls are not an error
			if err := i.RemoveEventHandler(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := cache.ShutDownEventHandler(i, r); err != nil {
			t.Fatal(err)
		}
		source.Add(pod("2", ""))
		stays.expect(t, "add 2")
		if n := goes.count(); n > 0 {
			t.Errorf("it was told %d times after its removal", n)
		}
	})
}

func TestHandler_removedByOthers(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t)
		i, other := subject.pods(source), subject.pods(source)
		w := &recorder{}
		r := join(t, i, w)
		foreign := join(t, other, &recorder{})
		if err := i.RemoveEventHandler(foreign); err != nil {
			t.Errorf("the handle of another informer: %v", err)
		}
		for _, handle := range []cache.ResourceEventHandlerRegistration{nil, nobodys{}} {
			if err := i.RemoveEventHandler(handle); err == nil || !strings.HasPrefix(err.Error(), "invalid key type ") {
				t.Errorf("a handle of nobody's: %v", err)
			}
		}
		synced(t, i, r)
		source.Add(pod("1", ""))
		w.expect(t, "add 1")
	})
}

// nobodys is a registration that was not made by an informer.
type nobodys struct {
	cache.ResourceEventHandlerRegistration
}

func TestHandler_registeredTwice(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t)
		i := subject.pods(source)
		w := &recorder{}
		first, second := join(t, i, w), join(t, i, w)
		if first == second {
			t.Error("two registrations have one handle")
		}
		synced(t, i, first, second)
		source.Add(pod("1", ""))
		w.expect(t, "add 1", "add 1")
		if err := cache.ShutDownEventHandler(i, first); err != nil {
			t.Fatal(err)
		}
		source.Add(pod("2", ""))
		w.expect(t, "add 2")
		if err := cache.ShutDownEventHandler(i, second); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHandler_addedAndRemovedWhileItRuns(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t, pod("1", ""))
		i := subject.pods(source)
		first, second := &recorder{}, &recorder{}
		r := join(t, i, first)
		synced(t, i)
		first.expect(t, "add 1 *")
		if err := cache.ShutDownEventHandler(i, r); err != nil {
			t.Fatal(err)
		}
		join(t, i, second)
		source.Add(pod("2", ""))
		expect.Soon(t, "both pods", func() bool { return second.believes() == "1 2" })
		if n := first.count(); n > 0 {
			t.Errorf("the one that was removed was told %d times", n)
		}
	})
}

// TestHandler_abuse adds and removes handlers from many goroutines while objects change,
// and before, while and after the informer runs.
func TestHandler_abuse(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		source := newSource(t)
		i := subject.pods(source)
		var workers sync.WaitGroup
		end := make(chan struct{})
		for range 6 {
			workers.Go(func() {
				var mine []cache.ResourceEventHandlerRegistration
				for {
					select {
					case <-end:
						return
					default:
					}
					if len(mine) < 5 && rand.N(2) == 0 {
						r, err := i.AddEventHandler(&recorder{})
						if err != nil {
							if !i.IsStopped() {
								t.Errorf("not added: %v", err)
							}
							continue
						}
						mine = append(mine, r)
					} else if len(mine) > 0 {
						n := rand.N(len(mine))
						if err := i.RemoveEventHandler(mine[n]); err != nil {
							t.Error(err)
						}
						if rand.N(2) == 0 {
							mine = append(mine[:n], mine[n+1:]...) // otherwise it is removed again later
						}
					}
					time.Sleep(time.Duration(rand.N(int64(time.Millisecond)))) // the pace of a worker
				}
			})
		}
		time.Sleep(20 * time.Millisecond) // the workers work before the informer runs
		stop := synced(t, i)
		w := &recorder{}
		join(t, i, w)
		for n := range 300 {
			source.Add(pod(fmt.Sprint(n), ""))
		}
		expect.Soon(t, "the last pod", func() bool { return w.count() == 300 })
		stop()
		time.Sleep(20 * time.Millisecond) // the workers work after it has stopped
		close(end)
		workers.Wait()
	})
}

// TestHandler_initializationRace adds a handler while the informer starts: in every case
// it receives all objects, and reports that it has synced.
func TestHandler_initializationRace(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		for range 20 {
			source := newSource(t, pod("1", ""))
			i := subject.pods(source)
			stop := start(t, i)
			time.Sleep(time.Duration(rand.N(int64(2 * time.Millisecond)))) // before, while and after it syncs
			w := &recorder{}
			r := join(t, i, w)
			expect.Soon(t, "the handler's sync", r.HasSynced)
			if got := w.believes(); got != "1" {
				t.Errorf("it has synced and believes %q", got)
			}
			stop()
		}
	})
}

func TestResync_eachHandlerAtItsTime(t *testing.T) {
	both(t, func(t *testing.T, subject constructor) {
		synctest.Test(t, func(t *testing.T) {
			source := newSource(t, pod("1", ""), pod("2", ""))
			i := subject(source, &corev1.Pod{}, time.Second, nil)
			counts := [3]atomic.Int32{}
			for n, period := range []time.Duration{0, 2 * time.Second, 3 * time.Second} {
				if _, err := i.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{
					UpdateFunc: func(old, now any) {
						if old != now {
							t.Error("a resync is of the same object")
						}
						counts[n].Add(1)
					},
				}, period); err != nil {
					t.Fatal(err)
				}
			}
			stop := start(t, i)
			for _, want := range []string{"[0 0 0]", "[0 2 0]", "[0 2 2]", "[0 4 2]"} {
				synctest.Wait()
				got := fmt.Sprint([]int32{counts[0].Load(), counts[1].Load(), counts[2].Load()})
				if want != got {
					t.Errorf("after %s resyncs %s, want %s", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)),
						got, want)
				}
				switch want {
				case "[0 0 0]":
					time.Sleep(2*time.Second + 10*time.Millisecond)
				default:
					time.Sleep(time.Second)
				}
			}
			stop()
		})
	})
}

func TestResync_rules(t *testing.T) {
	for _, c := range []struct {
		name                     string
		informer, early, late    time.Duration
		wantEarly, wantLateAtAll bool
	}{
		{"an informer without a period has none", 0, time.Second, time.Second, false, false},
		{"nobody wants it", time.Hour, 0, 0, false, false},
		{"an early one makes it more frequent", time.Hour, time.Second, 0, true, false},
		{"a late one does not", time.Hour, 0, time.Second, false, false},
		{"but may do as the early ones", time.Hour, 2 * time.Second, time.Second, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, subject constructor) {
				synctest.Test(t, func(t *testing.T) {
					source := newSource(t, pod("1", ""))
					i := subject(source, &corev1.Pod{}, c.informer, nil)
					var early, late atomic.Int32
					for _, h := range []struct {
						count  *atomic.Int32
						period time.Duration
					}{{&early, c.early}, {&late, c.late}} {
						if h.count == &late {
							start(t, i)
							synctest.Wait()
						}
						if _, err := i.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
							UpdateFunc: func(any, any) { h.count.Add(1) },
						}, cache.HandlerOptions{ResyncPeriod: &h.period}); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Minute)
					if got := early.Load() > 0; got != c.wantEarly {
						t.Errorf("the early one was resynced %d times", early.Load())
					}
					if got := late.Load() > 0; got != c.wantLateAtAll {
						t.Errorf("the late one was resynced %d times", late.Load())
					}
				})
			})
		})
	}
}
