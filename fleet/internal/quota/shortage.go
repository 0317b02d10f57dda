// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package quota

import (
	"context"
	"fmt"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// shortagePoll is how often a resource that needs memory looks whether there is room. It
	// sends no request for that.
	shortagePoll = 2 * time.Second
	// firstShortage is how long a resource waits after the first list or watch that ended for
	// want of memory, and longestShortage the longest wait. Each wait is three times the one
	// before.
	firstShortage   = 20 * time.Second
	longestShortage = 10 * time.Minute
	// shortageAge is how long a shortage is remembered: the resource may have become smaller.
	shortageAge = time.Hour
)

// ErrMemory is the cause of errors about a resource for which the process has no memory. Such
// an error is an [ErrLimit] too.
var ErrMemory = fmt.Errorf("%w: the process has no memory", ErrLimit)

// shortage is the lack of memory that a resource had. Its zero value means that there was none.
type shortage struct {
	// need is how many bytes the resource needs, besides what it keeps.
	need int64
	// listing means that the lack has ended the first list.
	listing bool
	// at is when it was, and wait for how long the resource is not read again after that.
	at   time.Time
	wait time.Duration
}

// begin records a lack of memory.
func (s *shortage) begin(need int64, listing bool) {
	now := time.Now()
	if now.Sub(s.at) > s.wait+longestShortage {
		s.wait = 0 // the last one was long ago
	}
	s.need, s.listing, s.at = need, listing, now
	s.wait = min(max(firstShortage, 3*s.wait), longestShortage)
}

// blocks reports whether the resource must not be read yet, with the bytes that it has. If
// there is twice the memory that it needs, it waits for a minute at most.
func (s *shortage) blocks(r *room, has int64) bool {
	since := time.Since(s.at)
	switch {
	case s.at.IsZero():
		return false
	case since > shortageAge:
		*s = shortage{}
		return false
	case since >= s.wait:
		return !r.fits(has, s.need)
	default:
		return since < time.Minute || !r.fits(has, 2*s.need)
	}
}

// memoryError returns an error about a resource that lacks memory. The next attempt waits for
// memory itself, so the reflector need not.
func memoryError(format string, args ...any) error {
	return &reflector.Error{
		RetryAfter: time.Second, Err: fmt.Errorf("%w "+format, append([]any{ErrMemory}, args...)...),
	}
}

// measureBytes is how many bytes of a first list arrive between two checks for room.
const measureBytes = 256 << 10

// Await waits until there is memory for the resource, if it lacked memory before. "expected" is how
// many objects the first list is expected to have, less than 0 if that is not known.
func (u *Usage) Await(ctx context.Context, expected int64) error {
	r := &u.account.process.room
	for u.short.blocks(r, u.kept()) || u.refused && !r.fits(u.kept(), u.need(expected)) {
		if err := timer.Sleep(ctx, shortagePoll); err != nil {
			return err
		}
	}
	return nil
}

// need returns how many bytes the first list is expected to take.
func (u *Usage) need(expected int64) int64 { return max(expected*objectEstimate, u.short.need, 0) }

// Begin begins a list, the first one if "synced" is false, and reserves memory for a first list. It
// returns false if there is not enough memory, the first time with an error, so that the status of
// the resource has it. If it returns true, the caller calls [Usage.End] after the list.
func (u *Usage) Begin(expected int64, synced bool) (bool, error) {
	if u.reserve(expected, synced) {
		u.listed, u.unmeasured, u.refused = 0, 0, false
		return true, nil
	}
	if !u.refused {
		u.refused = true
		return false, memoryError("for another resource, with %d objects", max(expected, 0))
	}
	return false, nil
}

// reserve reserves memory for the first list, and reports whether there was enough.
func (u *Usage) reserve(expected int64, synced bool) bool {
	if synced {
		return true
	}
	p := u.account.process
	d, ok := p.room.reserve(u, u.need(expected))
	u.demand = d
	if !ok {
		p.refused.Store(true)
	}
	return ok
}

// End ends a list that has begun.
func (u *Usage) End() {
	if u.demand != nil {
		u.account.process.room.release(u.demand)
	}
	u.demand = nil
}

// Complete forgets the lack of memory that ended a first list: one is complete now.
func (u *Usage) Complete() {
	if u.short.listing {
		u.short = shortage{}
	}
}

// checkMemory returns an error if there is no memory for an object that is about to be kept.
func (u *Usage) checkMemory(ctx context.Context, o *wire.Object) error {
	if u.demand == nil {
		return u.checkGrowth(o)
	}
	n := int64(o.Size() + ObjectOverhead)
	if u.unmeasured += n; u.unmeasured < measureBytes && u.listed > 1 {
		return nil
	}
	p := u.account.process
	ok, err := p.room.grow(ctx, u.demand, u.unmeasured)
	if err != nil {
		return err
	}
	if !ok {
		// There is more to come.
		has := u.kept()
		u.short.begin(has+has/4+n, true)
		p.refused.Store(true)
		return memoryError("for another resource, with at least %d bytes", has)
	}
	u.unmeasured = 0
	return nil
}

// checkGrowth returns an error if memory is critical and the object makes a resource larger
// that is not small.
func (u *Usage) checkGrowth(o *wire.Object) error {
	p := u.account.process
	if !p.is(PressureCritical) {
		u.short = shortage{}
		return nil
	}
	if _, ok := u.of.Snapshot().GetRaw(o.Key()); ok {
		return nil
	}
	n := int64(o.Size() + ObjectOverhead)
	if p.room.fits(u.kept(), n) {
		return nil
	}
	u.short.begin(n, false)
	return memoryError("for another object")
}
