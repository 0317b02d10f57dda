// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a reflector between a server and a consumer that keeps a store.
type world struct {
	t      *testing.T
	server *server
	opts   reflector.Options
	queue  *delta.FIFO[pod]
	store  *store.Store[pod]
	*reflector.Reflector[pod]

	// stopRun ends the current Run and waits for it.
	stopRun  func()
	draining sync.WaitGroup
	// grain is the interval of checks while time passes.
	grain time.Duration

	mu sync.Mutex
	// deltas has what the consumer received, changes what the store made of it.
	deltas  []string
	changes []store.Change[pod]
	// pause is how long the consumer waits before each batch.
	pause time.Duration
}

// newWorld creates a world and starts nothing. It is called in a bubble.
func newWorld(t *testing.T, opts *reflector.Options, queue *delta.Options[pod]) *world {
	t.Helper()
	w := &world{t: t, server: newServer(), opts: *cmp.Or(opts, &reflector.Options{}), grain: 10 * time.Millisecond}
	w.store = store.New(podKey, &store.Options[pod]{
		Same:  func(old, now pod) bool { return old == now },
		Older: func(old, now pod) bool { return now.Version < old.Version },
	})
	qopts := *cmp.Or(queue, &delta.Options[pod]{})
	qopts.Known = w.store
	qopts.Version = func(p pod) uint64 { return uint64(p.Version) }
	w.queue = delta.New(podKey, &qopts)
	w.opts.Logger = slog.New(slog.DiscardHandler)
	w.Reflector = reflector.New(w.server, w.queue, &w.opts)
	return w
}

// start runs the reflector and the consumer until the test ends.
func (w *world) start() *world {
	w.t.Helper()
	w.run()
	w.draining.Go(w.consume)
	w.t.Cleanup(func() {
		w.stopRun()
		w.queue.Close()
		w.draining.Wait()
	})
	return w
}

// run runs the reflector until stopRun.
func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stopRun = sync.OnceFunc(func() {
		cancel()
		began := time.Now()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took > 0 {
			w.t.Errorf("Run went on for %v after its context had ended", took)
		}
	})
}

func (w *world) consume() {
	for {
		err := w.queue.Drain(context.Background(), func(ds delta.Deltas[pod], _ bool) error {
			w.mu.Lock()
			pause := w.pause
			w.mu.Unlock()
			time.Sleep(pause)
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, d := range ds {
				if d.Type == delta.Bookmark && d.Version == 0 {
					continue // the end of a list without a version
				}
				w.deltas = append(w.deltas, show(d))
			}
			w.changes = append(w.changes, w.store.Apply(ds)...)
			return nil
		})
		if errors.Is(err, delta.ErrClosed) {
			return
		}
	}
}

// show formats a delta: "Deleted a@4 (missed)", "Bookmark 5".
func show(d delta.Delta[pod]) string {
	words := fmt.Sprintf("%s %s@%d", d.Type, d.Key, d.Object.Version)
	if d.Type == delta.Bookmark {
		words = fmt.Sprintf("%s %d", d.Type, d.Version)
	}
	if d.Missed {
		words += " (missed)"
	}
	return words
}

// got returns the deltas since the last call.
func (w *world) got() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ds := w.deltas
	w.deltas = nil
	return ds
}

// let passes time, and then waits until all goroutines are idle.
func (w *world) let(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until passes time until a condition holds, which must happen within an hour.
func (w *world) until(what string, so func() bool) {
	w.t.Helper()
	for range time.Hour / w.grain {
		synctest.Wait()
		if so() {
			return
		}
		time.Sleep(w.grain)
	}
	w.t.Fatalf("not %s after an hour; copy %v of %v; status %+v, asked %q", what, maps.Collect(w.store.All()),
		w.server.state(), w.Status(), w.server.got())
}

func (w *world) untilState(s reflector.State) {
	w.t.Helper()
	w.until(s.String(), func() bool { return w.Status().State == s })
}

// wantCopy checks that the store has the state of the server.
func (w *world) wantCopy() {
	w.t.Helper()
	expect.Equal(w.t, maps.Collect(w.store.All()), w.server.state())
}

// untilCopied passes time until the store has the state of the server and the reflector
// is watching.
func (w *world) untilCopied() {
	w.t.Helper()
	w.until("a copy", func() bool {
		return w.Status().State == reflector.Watching && maps.Equal(maps.Collect(w.store.All()), w.server.state())
	})
}

// wantAsked checks the requests since the last call.
func (w *world) wantAsked(want ...string) {
	w.t.Helper()
	expect.Equal(w.t, w.server.got(), want)
}

// times returns the times of the requests since the last wantAsked. There must be n.
func (w *world) times(n int) []time.Time {
	w.t.Helper()
	times := w.server.times()
	if len(times) < n {
		w.t.Fatalf("asked %q, want at least %d requests", w.server.got(), n)
	}
	return times
}

// wantGot checks the deltas since the last call.
func (w *world) wantGot(want ...string) {
	w.t.Helper()
	expect.Equal(w.t, w.got(), want)
}

// within checks that a wait is in [least, most).
func within(t *testing.T, got, least, most time.Duration) {
	t.Helper()
	if got < least || got >= most {
		t.Errorf("waited %v, want [%v, %v)", got, least, most)
	}
}

// puts writes objects, named by letters.
func (w *world) puts(names ...string) {
	for _, name := range names {
		w.server.put(name, "")
	}
}

// watching returns a world with three objects that is up to date, and whose watch has
// lasted a second. The requests and deltas so far are already read.
func watching(t *testing.T, opts *reflector.Options) *world {
	t.Helper()
	w := newWorld(t, opts, nil)
	w.puts("a", "b", "c")
	w.start().untilCopied()
	w.let(time.Second)
	w.server.got()
	w.got()
	return w
}

// bubble runs a test in virtual time.
func bubble(name string, t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// newSmallWorld returns a world with a queue of the given capacity.
func newSmallWorld(t *testing.T, opts *reflector.Options, capacity int) *world {
	t.Helper()
	return newWorld(t, opts, &delta.Options[pod]{Capacity: capacity})
}
