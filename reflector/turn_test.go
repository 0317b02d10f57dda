// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// turns grants turns when a test allows them.
type turns struct {
	allow       chan struct{}
	asked, held atomic.Int64
}

func (tr *turns) wait(ctx context.Context) (func(), error) {
	tr.asked.Add(1)
	select {
	case <-tr.allow:
		tr.held.Add(1)
		return func() { tr.held.Add(-1) }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestTurn_isAwaitedBeforeTheStateIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &turns{allow: make(chan struct{})}
		w := newWorld(t, &reflector.Options{Turn: tr.wait}, nil)
		w.puts("a", "b")
		// This is longer than Silence, but no request was sent.
		w.start().let(10 * time.Minute)
		expect.Equal(t, tr.asked.Load(), 1)
		w.wantAsked()
		expect.Equal(t, w.Status().Failures, 0)

		w.server.fail(watches, fault{pace: time.Second})
		tr.allow <- struct{}{}
		w.let(1500 * time.Millisecond)
		expect.Equal(t, tr.held.Load(), 1)
		w.let(5 * time.Second)
		expect.Equal(t, tr.held.Load(), 0)
		w.wantCopy()

		// A watch needs no turn. A list that fails releases its turn and requests
		// another.
		w.server.forget()
		w.puts("c")
		w.server.fail(watches, fault{err: errReset})
		w.server.send(item{err: expired})
		w.until("asked again", func() bool { return tr.asked.Load() == 2 })
		tr.allow <- struct{}{}
		w.until("asked once more", func() bool { return tr.asked.Load() == 3 })
		expect.Equal(t, tr.held.Load(), 0)
		tr.allow <- struct{}{}
		w.untilCopied()
		expect.Equal(t, tr.held.Load(), 0)
	})
}

func TestTurn_waitingEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &turns{allow: make(chan struct{})}
		w := newWorld(t, &reflector.Options{Turn: tr.wait}, nil)
		w.start().let(time.Second)
		w.stopRun() // fails the test if that takes time
		expect.Equal(t, tr.held.Load(), 0)
	})
}

func TestReopen_watchesAnewAfterAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &reflector.Options{Reopen: true}, nil)
		w.puts("a", "b")
		w.start().let(time.Second)
		w.wantGot("Replaced a@1", "Replaced b@2", "Bookmark 2")
		w.puts("c")
		w.let(time.Second)
		w.wantGot("Added c@3")
		w.wantAsked("stream", "watch 2")
		expect.Equal(t, w.Status().Streams, true)
		expect.Equal(t, w.Status().Lists, 1)

		// A watch that cannot be opened is retried without another list.
		w2 := newWorld(t, &reflector.Options{Reopen: true}, nil)
		w2.puts("a")
		w2.server.fail(watches, fault{}, fault{err: errReset})
		w2.start().until("watching", func() bool { return w2.Status().State == reflector.Watching })
		expect.Equal(t, w2.Status().Lists, 1)
		w2.puts("b")
		w2.untilCopied()
	})
}
