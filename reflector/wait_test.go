// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// waitingSource is an empty source. Each of its watches has two bookmarks and then waits in
// Wait.
type waitingSource struct{ watches, early atomic.Int64 }

func (s *waitingSource) List(context.Context, reflector.ListOptions, func(pod) error) (reflector.Page, error) {
	return reflector.Page{Version: "2"}, nil
}

func (s *waitingSource) Served(context.Context) (bool, error) { return true, nil }

func (s *waitingSource) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[pod], error) {
	s.watches.Add(1)
	return &waitingWatch{source: s, ctx: ctx}, nil
}

type waitingWatch struct {
	source *waitingSource
	ctx    context.Context
	// arrived means that Wait was called since the last event, of which there were sent.
	arrived bool
	sent    int
}

func (w *waitingWatch) Wait() {
	w.block()
	w.arrived = true
}

// block waits for the third event, which never comes.
func (w *waitingWatch) block() {
	if w.sent == 2 {
		<-w.ctx.Done()
	}
}

func (w *waitingWatch) Next() (reflector.Event[pod], error) {
	if !w.arrived {
		w.source.early.Add(1)
	}
	w.arrived = false
	w.block()
	if w.ctx.Err() != nil {
		return reflector.Event[pod]{}, w.ctx.Err()
	}
	w.sent++
	return reflector.Event[pod]{Type: delta.Bookmark, Version: "2"}, nil
}

func (w *waitingWatch) Close() error { return nil }

// TestWait_comesBeforeNextAndEndsWithSilence has a watch that waits in Wait until the
// reflector takes it for silent, or is asked for a list, or its queue is closed.
func TestWait_comesBeforeNextAndEndsWithSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &waitingSource{}
		queue := delta.New(podKey, nil)
		r := reflector.New[pod](source, queue, &reflector.Options{
			Silence: time.Minute, ListOnly: true, Logger: slog.New(slog.DiscardHandler),
		})
		done := make(chan error)
		go func() { done <- r.Run(t.Context()) }()
		time.Sleep(50 * time.Second)
		expect.Equal(t, r.Status().Failures, uint64(0))
		time.Sleep(40 * time.Second)
		if s := r.Status(); s.Failures != 1 || !reflector.IsSilence(s.Err) {
			t.Errorf("after silence: %d failures, the last is %v", s.Failures, s.Err)
		}
		synctest.Wait()
		before := r.Status()
		expect.Equal(t, before.State, reflector.Watching)
		r.Relist()
		synctest.Wait()
		after := r.Status()
		if after.Lists != before.Lists+1 || after.State != reflector.Watching || after.Failures != before.Failures {
			t.Errorf("after a request for a list: %+v, before %+v", after, before)
		}
		queue.Close()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		expect.Equal(t, source.early.Load(), int64(0))
	})
}
