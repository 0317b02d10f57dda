// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"context"
	"errors"
	"time"
)

// errResync ends a wait for changes because a resync is due.
var errResync = errors.New("resync is due")

// resync says when a handler is to be given every object again, and of which
// moment: one that it has just reached. Given a state from ahead of it, it would
// see older ones afterwards.
type resync struct {
	period time.Duration
	at     time.Time // zero: never
	// target is the state to give, when the handler gets there.
	target *snapshot
}

func newResync(period time.Duration) *resync {
	r := &resync{period: max(period, 0)}
	r.schedule()
	return r
}

func (r *resync) schedule() {
	r.target = nil
	if r.period > 0 {
		r.at = time.Now().Add(r.period)
	}
}

// next is the follower's; without changes it returns none when a resync is due.
func (r *resync) next(ctx context.Context, f *follower) (changes, error) {
	if r.period == 0 {
		return f.next(ctx)
	}
	if r.target == nil && !time.Now().Before(r.at) {
		r.target = f.life.store.Snapshot()
	}
	if r.target != nil && r.target.Revision() <= f.Position() {
		return changes{}, nil
	}
	if r.target == nil {
		wait, cancel := context.WithDeadlineCause(ctx, r.at, errResync)
		defer cancel()
		next, err := f.next(wait)
		if errors.Is(err, errResync) && ctx.Err() == nil {
			return changes{}, nil
		}
		return next, err
	}
	return f.next(ctx)
}

// reached returns the state to give now that one of the changes was delivered.
func (r *resync) reached(all changes, c *change) *snapshot {
	// Differences have no order. Only the state after the last one existed.
	if r.target == nil || all.Differences() || c.Revision != r.target.Revision() {
		return nil
	}
	defer r.schedule()
	return r.target
}

// caughtUp returns the state to give after a batch, if that got the handler there
// otherwise than change by change.
func (r *resync) caughtUp(f *follower) *snapshot {
	if r.target == nil || r.target.Revision() > f.Position() {
		return nil
	}
	defer r.schedule()
	if f.Base().Revision() == f.Position() {
		return f.Base() // where differences end, or the reader had nothing to read
	}
	return r.target
}
