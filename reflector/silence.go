// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// errSilent ends a request on which nothing has come for too long.
var errSilent = errors.New("nothing heard for too long")

// forever is for timers that are set later.
const forever = 1<<63 - 1

// silence ends the context of a request when nothing has come for a time. It
// costs three atomic writes per event, and a timer.
type silence struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	count  atomic.Uint64
	// held says that nobody listens: what has come is being queued, which takes
	// as long as its consumer does. That is no silence of the source's.
	held atomic.Bool
	// limit is how long is too long, in nanoseconds; 0 is never.
	limit atomic.Int64
	// end is when the request is over in any case, unless it is zero.
	end time.Time

	// mu guards what follows, which is the timer's: set anew by within, it may
	// fire while it is still being dealt with.
	mu    sync.Mutex
	seen  uint64
	since time.Time
}

// listen returns a silence whose context ends after limit without a sign, or at
// the end. The caller must call stop.
func listen(ctx context.Context, limit time.Duration, end time.Time) *silence {
	s := &silence{end: end, since: time.Now()}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.limit.Store(int64(limit))
	s.timer = time.AfterFunc(forever, s.look)
	s.timer.Reset(s.step())
	return s
}

// step is how often to look: a silence is found out a quarter late at most.
func (s *silence) step() time.Duration {
	if limit := time.Duration(s.limit.Load()); limit > 0 {
		return limit / 4
	}
	if s.end.IsZero() {
		return time.Minute
	}
	return max(time.Until(s.end), 0) + time.Millisecond // there is nothing else to wait for
}

func (s *silence) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	held := s.held.Load()
	if count := s.count.Load(); count != s.seen {
		s.seen, s.since = count, now
	}
	limit := time.Duration(s.limit.Load())
	switch {
	case s.ctx.Err() != nil:
	case held:
		s.timer.Reset(s.step())
	case limit > 0 && now.Sub(s.since) >= limit, !s.end.IsZero() && now.After(s.end):
		s.cancel(errSilent)
	default:
		s.timer.Reset(s.step())
	}
}

// hold says that something has come and is being dealt with.
func (s *silence) hold() { s.held.Store(true) }

// wait says that it is the source's turn again.
func (s *silence) wait() {
	s.count.Add(1)
	s.held.Store(false)
}

// within changes the limit.
func (s *silence) within(limit time.Duration) {
	s.count.Add(1)
	if s.limit.Swap(int64(limit)) != int64(limit) {
		s.timer.Reset(s.step()) // the old step may be longer than the new limit
	}
}

// cause is err, or errSilent if that is why the request ended.
func (s *silence) cause(err error) error {
	if errors.Is(context.Cause(s.ctx), errSilent) {
		return errSilent
	}
	return err
}

func (s *silence) stop() {
	s.timer.Stop()
	s.cancel(nil)
}
