// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package undecodable

import (
	"sync"
	"sync/atomic"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/wire"
)

// Skipped has, for one reader of changes, the objects whose current state it could not
// decode, and for each the last state that it received. The zero value is ready; it is
// safe for concurrent use.
type Skipped[K comparable] struct {
	// count is len(last), so that a reader without such objects takes no lock.
	count atomic.Int64
	mu    sync.Mutex
	// last has nil for an object of which the reader has received no state.
	last map[K]*wire.Object
}

// Change is one change of one object.
type Change struct {
	// Type is Added, Updated or Deleted.
	Type delta.Type
	// Missed marks a Deleted whose New may not be the final state.
	Missed   bool
	Old, New *wire.Object
}

// Last returns the last state of an object that the reader received, nil if there is
// none, and whether the current state was skipped.
func (s *Skipped[K]) Last(key K) (last *wire.Object, skipped bool) {
	if s.count.Load() == 0 {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, skipped = s.last[key]
	return last, skipped
}

// Resolve returns the change from the last state of the object that the reader
// received, which is the change's Old unless states were skipped, and whether the
// reader can receive it. If it cannot, the change counts as skipped.
func (s *Skipped[K]) Resolve(key K, c Change, decodes func(*wire.Object) bool) (Change, bool) {
	last, skipped := s.Last(key)
	if !skipped && c.Old != nil && decodes(c.Old) {
		last = c.Old
	}
	readable := decodes(c.New)
	c.Old = last
	switch {
	case c.Type == delta.Deleted:
		s.forget(key)
		if last != nil && !readable {
			c.New, c.Missed = last, true
		}
		return c, last != nil
	case last == nil:
		c.Type = delta.Added
	default:
		c.Type = delta.Updated
	}
	if readable {
		s.forget(key)
	} else {
		s.skip(key, last)
	}
	return c, readable
}

func (s *Skipped[K]) skip(key K, last *wire.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[K]*wire.Object{}
	}
	s.last[key] = last
	s.count.Store(int64(len(s.last)))
}

func (s *Skipped[K]) forget(key K) {
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, key)
	s.count.Store(int64(len(s.last)))
}

// Loop is [Skipped] for a reader that decides itself whether to decode a change. A
// state counts as skipped if the reader has tried to decode it and failed.
type Loop[K comparable] struct {
	skipped Skipped[K]
	turn    atomic.Uint64
}

// Turn is a change that a loop has returned to its reader.
type Turn[K comparable] struct {
	Change
	loop   *Loop[K]
	number uint64
}

// Next returns the change for the reader. Only an object whose last state was skipped is
// decoded.
func (l *Loop[K]) Next(key K, c Change, decodes func(*wire.Object) bool) Turn[K] {
	number := l.turn.Add(1)
	if _, skipped := l.skipped.Last(key); skipped {
		resolved, _ := l.skipped.Resolve(key, c, decodes)
		// The final state of a deleted object stays: the reader may want the bytes.
		c.Type, c.Old = resolved.Type, resolved.Old
	}
	return Turn[K]{Change: c, loop: l, number: number}
}

// Fallback returns the state to read instead of New, which the reader could not decode
// because of err. It is nil if err is nil, or if there is no such state: only a Deleted
// has one, the state before it. Any other change counts as skipped, unless the reader has
// received another one since.
func (t Turn[K]) Fallback(err error, key K, decodes func(*wire.Object) bool) *wire.Object {
	switch {
	case err == nil:
	case t.Type != delta.Deleted:
		if t.loop.turn.Load() == t.number {
			t.loop.skipped.Resolve(key, t.Change, decodes)
		}
	case t.Old != nil && decodes(t.Old):
		return t.Old
	}
	return nil
}
