// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// TestRun_everyWaitEndsWithItsContext stops a reflector in the middle of each wait. Where
// tests stop their Run they check that it takes no time.
func TestRun_everyWaitEndsWithItsContext(t *testing.T) {
	for name, tt := range map[string]struct {
		only bool
		set  func(s *server)
		want reflector.State
	}{
		"back-off": {
			false, func(s *server) { s.choose = func(kind) fault { return fault{err: refused} } }, reflector.Waiting,
		},
		"retry after": {false, func(s *server) { s.fail(watches, fault{err: busy(time.Hour)}) }, reflector.Waiting},
		"parked":      {false, func(s *server) { s.vanish() }, reflector.Parked},
		"served?":     {false, func(s *server) { s.vanish(); s.fail(serves, fault{hang: true}) }, reflector.Listing},
		"parked served?": {
			false, func(s *server) { s.vanish(); s.fail(serves, fault{}, fault{hang: true}) }, reflector.Parked,
		},
		"silent open":   {false, func(s *server) { s.fail(watches, fault{hang: true}) }, reflector.Listing},
		"silent stream": {false, func(s *server) { s.fail(watches, fault{deaf: true, after: 1}) }, reflector.Listing},
		"silent watch":  {false, func(s *server) { s.fail(watches, fault{deaf: true, after: 4}) }, reflector.Watching},
		"silent list":   {true, func(s *server) { s.fail(lists, fault{hang: true}) }, reflector.Listing},
		"list":          {true, func(s *server) { s.fail(lists, fault{pace: 15 * time.Second}) }, reflector.Listing},
		"stream":        {false, func(s *server) { s.fail(watches, fault{pace: 15 * time.Second}) }, reflector.Listing},
		"watch":         {true, func(*server) {}, reflector.Watching},
	} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: tt.only}, nil)
			w.puts("a", "b", "c")
			tt.set(w.server)
			w.start().let(20 * time.Second)
			expect.Equal(t, w.Status().State, tt.want)
			w.stopRun()
			expect.Equal(t, w.Status().State, reflector.Idle)
			expect.Equal(t, len(w.server.open), 0)
		})
	}
}

func TestRun_waitForRoomEndsWithItsContext(t *testing.T) {
	for name, tt := range map[string]struct {
		only     bool
		capacity int
	}{
		"in a list":                   {true, 2},
		"at its end":                  {true, 3},
		"in a stream":                 {false, 2},
		"at the end of a stream":      {false, 3},
		"in a watch":                  {true, 5},
		"in a watch after its stream": {false, 5},
	} {
		bubble(name, t, func(t *testing.T) {
			w := newSmallWorld(t, &reflector.Options{ListOnly: tt.only}, tt.capacity)
			w.puts("a", "b", "c")
			w.run() // without a consumer
			w.let(time.Second)
			w.puts("d", "e", "f")
			w.let(time.Minute)
			expect.Equal(t, w.queue.Len()+1 >= tt.capacity, true) // a bookmark does not count
			w.stopRun()
			expect.Equal(t, w.Status().Failures, 0)
		})
	}
}

func TestRun_returnsWhenItsContextHasEndedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		expect.Equal(t, w.Run(ctx), nil)
		expect.Equal(t, w.Status().Failures, 0)
	})
}

func TestRun_returnsWhenTheQueueIsClosed(t *testing.T) {
	// The queue can be closed in any phase of Run.
	for name, tt := range map[string]struct {
		only   bool
		closed time.Duration
		event  bool
	}{
		"before a stream": {false, 0, false},
		"before a list":   {true, 0, false},
		"in a stream":     {false, 2500 * time.Millisecond, false},
		"in a list":       {true, 2500 * time.Millisecond, false},
		"by an event":     {false, time.Minute, true},
		"by a bookmark":   {true, 90 * time.Second, false},
	} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: tt.only}, nil)
			w.puts("a", "b", "c")
			w.server.fail(lists, fault{pace: time.Second})
			w.server.fail(watches, fault{pace: time.Second})
			ended := make(chan error, 1)
			time.AfterFunc(tt.closed, w.queue.Close)
			synctest.Wait()
			go func() { ended <- w.Run(t.Context()) }()
			w.let(tt.closed)
			if tt.event {
				w.puts("d")
			}
			w.let(61 * time.Second)
			select {
			case err := <-ended:
				expect.Equal(t, err, nil)
			default:
				t.Fatal("Run has not returned")
			}
			expect.Equal(t, w.Status().Failures, 0)
		})
	}
}

func TestRun_waitsForRoomAndReturnsWhenTheQueueIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSmallWorld(t, nil, 1)
		w.puts("a", "b")
		time.AfterFunc(time.Minute, w.queue.Close)
		began := time.Now()
		expect.Equal(t, w.Run(t.Context()), nil)
		expect.Equal(t, time.Since(began), time.Minute)
	})
}

func TestRun_isForOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		for range 2 {
			if err := w.Run(t.Context()); !errors.Is(err, reflector.ErrRunning) {
				t.Errorf("second Run: %v, want ErrRunning", err)
			}
		}
		// The first Run is not affected.
		expect.Equal(t, w.Status().State, reflector.Watching)
		w.puts("d")
		w.let(time.Second)
		w.wantCopy()
	})
}

func TestRun_canBeCalledAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		only  bool
		asked []string
	}{
		"streamed": {false, []string{"stream 3"}},
		// An arbitrary state is not acceptable any more: it may be older than the copy.
		"listed": {true, []string{`list "3" or newer`, "watch 5"}},
	} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, &reflector.Options{ListOnly: tt.only})
			for range 3 {
				w.stopRun()
				w.run()
				w.untilCopied()
			}
			w.stopRun()
			w.server.got()
			w.got()
			w.server.del("b")
			w.puts("d")
			w.let(time.Hour)
			expect.Equal(t, w.server.got(), nil)
			w.run()
			w.untilCopied()
			w.wantAsked(tt.asked...)
			w.wantGot("Replaced a@1", "Replaced c@3", "Replaced d@5", "Deleted b@2 (missed)", "Bookmark 5")
		})
	}
}

func TestRun_canBeCalledAgainInTheMiddleOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(2), nil)
		w.puts("a", "b", "c", "d")
		w.server.fail(lists, fault{}, fault{hang: true})
		w.start().let(time.Second)
		w.stopRun()
		w.server.del("a")
		w.run()
		w.untilCopied()
		w.wantGot("Replaced a@1", "Replaced b@2", "Replaced b@2", "Replaced c@3", "Replaced d@4",
			"Deleted a@1 (missed)", "Bookmark 5")
	})
}

func TestNew_panicsWithoutSourceOrQueue(t *testing.T) {
	for name, f := range map[string]func(){
		"source": func() { reflector.New(nil, delta.New(podKey, nil), nil) },
		"queue":  func() { reflector.New[pod](newServer(), nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("New has not panicked")
				}
			}()
			f()
		})
	}
}
