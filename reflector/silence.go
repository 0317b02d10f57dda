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

// errSilent is the error of a request that has received nothing for too long, or that has
// not ended in time.
var errSilent = errors.New("no data from the server for too long")

// IsSilence reports whether an error is that of a request that has received nothing for too
// long.
func IsSilence(err error) bool { return errors.Is(err, errSilent) }

// forever is the initial duration of a timer that is set later.
const forever = 1<<63 - 1

// silence watches a request, and cancels its context when it has received nothing for a
// given time. It costs three atomic writes per event, and a timer.
type silence struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	own    bool // ctx ends with the silence
	timer  *time.Timer
	count  atomic.Uint64
	// held means that something was received and is being queued. Queueing may have to
	// wait for the consumer, and this time does not count as silence of the source.
	held atomic.Bool
	// limit is the longest permitted silence in nanoseconds; 0 means no limit.
	limit atomic.Int64
	// end is when the request is cancelled in any case, unless it is zero.
	end time.Time

	// mu guards the fields below, which check uses. It is needed because within resets
	// the timer, which may then fire while check is still running.
	mu    sync.Mutex
	seen  uint64
	since time.Time
}

// listen returns a silence. Its context ends when nothing has been received for limit, or
// at the time end. The caller must call stop.
func listen(ctx context.Context, limit time.Duration, end time.Time) *silence {
	return listenWith(ctx, nil, limit, end)
}

// listenWith is listen for a ctx that cancel cancels, if cancel is not nil. The silence then
// needs no context of its own, and stop does not end ctx.
func listenWith(ctx context.Context, cancel context.CancelCauseFunc, limit time.Duration, end time.Time) *silence {
	s := &silence{end: end, since: time.Now(), ctx: ctx, cancel: cancel}
	if cancel == nil {
		s.ctx, s.cancel = context.WithCancelCause(ctx)
		s.own = true
	}
	s.limit.Store(int64(limit))
	s.timer = time.AfterFunc(forever, s.check)
	s.timer.Reset(s.step())
	return s
}

// step returns the time until the next check. If there is a limit, it is a quarter of the
// limit, so a silence is detected late by at most that.
func (s *silence) step() time.Duration {
	if limit := time.Duration(s.limit.Load()); limit > 0 {
		return limit / 4
	}
	if s.end.IsZero() {
		return time.Minute
	}
	return max(time.Until(s.end), 0) + time.Millisecond // without a limit, only end has to be checked
}

func (s *silence) check() {
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

// hold records that something was received and is being processed.
func (s *silence) hold() { s.held.Store(true) }

// wait records that the next data has to come from the source.
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

// cause returns errSilent if silence ended the request, and err otherwise.
func (s *silence) cause(err error) error {
	if errors.Is(context.Cause(s.ctx), errSilent) {
		return errSilent
	}
	return err
}

func (s *silence) stop() {
	s.timer.Stop()
	if s.own {
		s.cancel(nil)
	}
}
