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

// resync determines when a handler receives every object again, and of which state: the
// one that the handler has just reached. After a later state, the handler would receive
// older ones.
type resync struct {
	period time.Duration
	at     time.Time // zero: never
	// target is the state to send when the handler has reached it.
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

// next is follower.next, but returns no changes when a resync is due.
func (r *resync) next(ctx context.Context, f *follower) (changes, error) {
	if r.period == 0 {
		return f.next(ctx)
	}
	if r.target == nil && !time.Now().Before(r.at) {
		r.target = f.timeline.store.Snapshot()
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

// reached returns the state to send after one of the changes was delivered, or nil.
func (r *resync) reached(all changes, c *change) *snapshot {
	// Differences have no order. Only the state after the last one existed.
	if r.target == nil || all.Differences() || c.Revision != r.target.Revision() {
		return nil
	}
	defer r.schedule()
	return r.target
}

// caughtUp returns the state to send after a batch, if the handler did not reach it
// change by change, or nil.
func (r *resync) caughtUp(f *follower) *snapshot {
	if r.target == nil || r.target.Revision() > f.Position() {
		return nil
	}
	defer r.schedule()
	if f.Base().Revision() == f.Position() {
		return f.Base() // the end of differences, or the reader had nothing to read
	}
	return r.target
}
