// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import "time"

// State is what a reflector is doing.
type State uint8

const (
	// Idle is before Run and after it.
	Idle State = iota
	// Listing is reading the whole state, as a list or as a stream.
	Listing
	// Watching is following changes: the only state in which the copy is current.
	Watching
	// Waiting is having failed, until the next try.
	Waiting
	// Parked is waiting for a resource that the source does not have. Its objects are
	// still there until [Options.Absence] is over.
	Parked
)

// String is the state in lower case.
func (s State) String() string {
	switch s {
	case Listing:
		return "listing"
	case Watching:
		return "watching"
	case Waiting:
		return "waiting"
	case Parked:
		return "parked"
	default:
		return "idle"
	}
}

// Status is what a reflector is doing and has been through.
type Status struct {
	State State
	// Since is when it began to do that.
	Since time.Time
	// Version is the last resourceVersion seen.
	Version string
	// Heard is when the source last sent something.
	Heard time.Time
	// StaleSince is when the copy ceased to be current; zero while it is, and
	// before it first was.
	StaleSince time.Time
	// Err is the last failure, and ErrAt its time. They stay when it is over.
	Err   error
	ErrAt time.Time
	// Streams says whether the source can give its state as a stream; unknown
	// until asked, then false.
	Streams bool
	// Lists counts complete states read, Watches watches begun.
	Lists, Watches uint64
	// Failures counts by what failed: any list, watch or check.
	Failures uint64
	// Restores counts the times the source was found to have gone back.
	Restores uint64
	// Dropped counts objects that could not be read, had no key, or that the
	// queue's transform refused. They are missing from the copy, or old in it.
	Dropped uint64
}

// Status can be called at any time.
func (r *Reflector[T]) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// note changes the status under its lock.
func (r *Reflector[T]) note(change func(s *Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

// enter notes a state and, if it is a new one, when it began.
func (r *Reflector[T]) enter(state State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.status
	if s.State == state {
		return
	}
	now := time.Now()
	switch {
	case state == Watching:
		s.StaleSince = time.Time{}
	case s.State == Watching:
		s.StaleSince = now
	}
	s.State, s.Since = state, now
}

// heard notes that the source sent something, and the version it sent.
func (r *Reflector[T]) heard(version string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Heard = now
	if version != "" {
		r.status.Version = version
	}
}

// failed notes an error that is about to be dealt with.
func (r *Reflector[T]) failed(err error) {
	r.note(func(s *Status) {
		s.Failures++
		s.Err, s.ErrAt = err, time.Now()
	})
}

// drop notes an object that is lost.
func (r *Reflector[T]) drop(err error) {
	r.note(func(s *Status) {
		s.Dropped++
		s.Err, s.ErrAt = err, time.Now()
	})
	r.opts.Logger.Warn("object dropped", "err", err)
}
