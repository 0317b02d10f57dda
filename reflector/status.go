// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"log/slog"
	"sync"
	"time"
)

// State is the current activity of a reflector.
type State uint8

const (
	// Idle means that Run has not begun, or has returned.
	Idle State = iota
	// Listing means that the whole state is being read, as a list or as a stream.
	Listing
	// Watching means that changes are followed. Only in this state is the copy current.
	Watching
	// Waiting means that an attempt has failed and the next one has not begun.
	Waiting
	// Resuming means that changes since a stored state are followed, and that the copy is
	// not current yet: see [Reflector.Continue].
	Resuming
	// Parked means that the source does not have the resource. Its objects are kept until
	// [Options.Absence] is over.
	Parked
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Listing:
		return "listing"
	case Watching:
		return "watching"
	case Waiting:
		return "waiting"
	case Resuming:
		return "resuming"
	case Parked:
		return "parked"
	default:
		return "idle"
	}
}

// Status is the current activity of a reflector and its history.
type Status struct {
	State State
	// Since is when State began.
	Since time.Time
	// Version is the last resourceVersion seen.
	Version string
	// Heard is when the source last sent something.
	Heard time.Time
	// StaleSince is when the copy ceased to be current. It is zero while the copy is
	// current, and before it was for the first time.
	StaleSince time.Time
	// FailingSince is when the first failure occurred since the copy was last current. It is
	// zero while the copy is current.
	FailingSince time.Time
	// Err is the last failure or the reason of the last dropped object, and ErrAt its
	// time. They are kept after a recovery.
	Err   error
	ErrAt time.Time
	// Streams means that the source can send its state as a stream. It is false until
	// that is known.
	Streams bool
	// Lists counts complete states that were read, Watches the watches that were opened.
	Lists, Watches uint64
	// Failures counts failed lists, watches, checks and calls of [Source.Served].
	Failures uint64
	// Recoveries counts how often the copy became current again after it had ceased to be.
	Recoveries uint64
	// Restores counts how often the source was found to have gone back.
	Restores uint64
	// Dropped counts objects that could not be read, had no key, or were refused by the
	// queue's transform. They are missing from the copy, or outdated in it.
	Dropped uint64
}

// recorder keeps the status of a reflector, and counts its work.
type recorder struct {
	logger   *slog.Logger
	counters *Counters

	// mu guards status.
	mu     sync.Mutex
	status Status
}

// current returns the current status. It can be called at any time.
func (r *recorder) current() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// note changes the status under its lock.
func (r *recorder) note(change func(s *Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

// enter records a state and, if it is a new one, when it began.
func (r *recorder) enter(state State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.status
	if s.State == state {
		return
	}
	now := time.Now()
	switch {
	case state == Watching:
		if !s.StaleSince.IsZero() && s.State != Resuming {
			s.Recoveries++
		}
		s.StaleSince, s.FailingSince = time.Time{}, time.Time{}
	case s.State == Watching:
		s.StaleSince = now
	}
	s.State, s.Since = state, now
}

// heard records that the source sent something, and its version if it has one.
func (r *recorder) heard(version string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Heard = now
	if version != "" {
		r.status.Version = version
	}
}

// failed records an error that is about to be handled.
func (r *recorder) failed(err error) {
	r.counters.failed(err)
	r.note(func(s *Status) {
		s.Failures++
		s.Err, s.ErrAt = err, time.Now()
		if s.FailingSince.IsZero() {
			s.FailingSince = s.ErrAt
		}
	})
}

// drop records and logs an object that is dropped.
func (r *recorder) drop(err error) {
	r.counters.dropped.Add(1)
	r.note(func(s *Status) {
		s.Dropped++
		s.Err, s.ErrAt = err, time.Now()
	})
	r.logger.Warn("object dropped", "err", err)
}
