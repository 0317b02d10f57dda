// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// maxReads limits how often At begins anew because files were created or removed.
const maxReads = 10

// TooOldError is returned by [Folder.At] for a moment before the oldest stored state.
type TooOldError struct {
	Identity format.Identity
	Moment   Moment
	// Version and Time are those of the oldest state that can be read.
	Version uint64
	Time    time.Time
}

// Error implements error.
func (e *TooOldError) Error() string {
	return fmt.Sprintf("stored %v at %v is not available: the oldest stored state is version %d of %v",
		e.Identity, e.Moment, e.Version, e.Time.Format(time.RFC3339Nano))
}

// At returns the state that a mirror had at a moment, with only the objects whose keys are wanted.
// A nil want wants all. The error is a [*TooOldError], or a [*Rejection].
//
// At reads the log from the last complete state before the moment on: for a time up to the
// next state of the mirror, for a version up to its end, and perhaps from twice as far back.
func (f *Folder) At(id format.Identity, m Moment, want func(key string) bool) (*State, error) {
	return f.readAt(id, m, want, nil)
}

// ObjectAt returns the state at a time, as At does, but only with the object that has the key. With
// the index of the log it reads only the frames that may concern the object, and at most one chunk
// of a snapshot.
func (f *Folder) ObjectAt(id format.Identity, at time.Time, key string) (*State, error) {
	object := f.objectRead(id, key)
	object.at = at
	return f.readAt(id, Moment{Time: at}, nil, object)
}

// readAt reads the state of a moment. If object is not nil, it is the state of that object.
func (f *Folder) readAt(
	id format.Identity, m Moment, want func(key string) bool, object *objectRead,
) (*State, error) {
	var s *State
	var err error
	for range maxReads {
		if s, err = f.at(id, m, want, object); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errMoved) {
			break
		}
	}
	tooOld, rejected := (*TooOldError)(nil), (*Rejection)(nil)
	if err == nil || errors.As(err, &tooOld) || errors.As(err, &rejected) {
		return s, err
	}
	return nil, Reject(id, err)
}

// at reads the state of a moment once.
func (f *Folder) at(id format.Identity, m Moment, want func(key string) bool, object *objectRead) (*State, error) {
	r := f.restorer(id)
	r.Want = want
	x, err := listIndex(f.Files, f.Path)
	if err != nil {
		return nil, err
	}
	x.only, x.object = &r.Digest, object
	// The first list may lack a segment that was created before one of the snapshots.
	snapshots := x.Snapshots
	if x.Listing, err = format.List(f.Path); err != nil {
		return nil, err
	}
	x.Snapshots = snapshots
	if err := x.skipTorn(); err != nil {
		return nil, err
	}
	unreadable := map[string]error{}
	x.until = x.after(m)
	first, err := x.guess(m, r.Digest)
	for err == nil {
		if err := x.readSince(first); err != nil {
			return nil, err
		}
		s, snapshot, err := x.find(id, m, r, f.Keys, unreadable)
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, errShort):
			x.until = x.later(first)
		case snapshot != nil && !errors.Is(err, fs.ErrNotExist):
			unreadable[snapshot.Path] = err
		case first == x.start():
			return nil, err
		default:
			first = x.earlier(first)
		}
	}
	return nil, err
}

// readSince reads the segments from one on, and the footers of the snapshots that continue
// there. If it is the oldest one, the log after an older snapshot is missing.
func (x *Index) readSince(first uint64) error {
	oldest := first
	if first == x.start() {
		oldest = 0
	}
	if err := x.readSnapshots(oldest, x.until); err != nil {
		return err
	}
	return x.readFrom(first)
}

// find returns the state of a mirror at a moment, as far as the segments have been read. If
// a snapshot cannot be read, it returns the snapshot with the error.
func (x *Index) find(
	id format.Identity, m Moment, r *format.Restorer, keys format.Keys, unreadable map[string]error,
) (*State, *format.SnapshotFile, error) {
	f := x.Mirrors[r.Digest]
	switch {
	case f == nil && x.until != math.MaxUint64:
		return nil, nil, errShort
	case f == nil:
		return nil, nil, Reject(id, nil)
	}
	l := x.loading(f, keys, unreadable)
	l.seek = &seek{moment: m}
	l.follow(f)
	switch s := l.seek; {
	case l.removed:
		return nil, nil, errMoved
	case !s.passed && x.until != math.MaxUint64:
		return nil, nil, errShort
	case s.first == nil:
		return nil, nil, Reject(id, l.problem)
	case s.step == 0:
		return nil, nil, &TooOldError{Identity: id, Moment: m, Version: s.first.Version, Time: s.first.Time}
	case s.doubt != nil && s.version != m.Version:
		err := fmt.Errorf("changes between version %d and %v may be missing: %w", s.version, m, s.doubt)
		return nil, nil, &Rejection{Identity: id, Reason: Incomplete, Err: err}
	}
	// The second pass ends at the state that the first one has found.
	found := l.seek
	l = x.loading(f, keys, unreadable)
	l.stop, l.part, l.partVersion = found.step, found.part, found.version
	l.follow(f)
	if l.lost != found.lost {
		return nil, nil, fmt.Errorf("%v was found, and could not be read: %w", m, errMoved)
	}
	s, err := l.state(r)
	if err == nil {
		s.Last = !found.passed
	}
	return s, l.snapshot, err
}

// seek searches for the last state of a mirror that is not after a moment.
type seek struct {
	moment Moment
	// first is the oldest state.
	first *State
	// step is the last state that is not after the moment, 0 if there is none, and version
	// is its version. passed means that the next state is known. doubt is why it is not
	// known.
	step    int
	version uint64
	passed  bool
	doubt   error
	// lost is what [loading] had lost before the step.
	lost int
	// part, if it is not 0, is how many items of the batch at step belong to the state.
	part int
}

// arrive records that the frames have led to a state.
func (l *loading) arrive() {
	l.step++
	s := l.seek
	if s == nil {
		return
	}
	if s.first == nil {
		s.first = &State{Version: l.version, Time: l.time}
	}
	if s.moment.includes(l.version, l.time) {
		s.step = l.step
		s.version = l.version
		s.passed = false
		s.doubt = nil
		s.part = 0
		s.lost = l.lost
	} else {
		s.passed = true
	}
}

// ErrBetween means that a version was skipped by a relist, which finds changes but not their
// order.
var ErrBetween = errors.New("the state is between a relist and the change before it, and is not known")

// passBatch looks for a version between the current state and the one after a batch: some of
// its changes may belong to it.
func (l *loading) passBatch(c *commit) {
	s := l.seek
	if s == nil || s.moment.Version == 0 || c.state || l.version >= s.moment.Version || c.Version <= s.moment.Version {
		return
	}
	n := 0
	for n < len(c.items) && c.items[n].Version <= s.moment.Version {
		n++
	}
	later := slices.ContainsFunc(c.items[n:], func(i format.Item) bool { return i.Version <= s.moment.Version })
	switch {
	case c.again || later || c.Flags&format.ListedBatch != 0:
		l.interrupt(ErrBetween)
	case n > 0:
		s.step, s.version, s.passed, s.doubt, s.part, s.lost = l.step+1, c.items[n-1].Version, false, nil, n, l.lost
	}
}

// interrupt records why changes are missing after the current state.
func (l *loading) interrupt(why error) {
	if s := l.seek; s != nil && l.live && !s.passed {
		s.doubt = why
	}
}

// errShort means that the segments that were read have no state of the mirror after the
// moment.
var errShort = errors.New("more segments are needed")

// after returns the first segment that was begun after a time, and so probably has the next
// state of the mirror. A version may occur again up to the end of the log.
func (x *Index) after(m Moment) uint64 {
	if m.Version != 0 {
		return math.MaxUint64
	}
	for _, number := range x.Segments {
		if h, err := format.ReadHeader(x.folder, number); err == nil && h.Time.After(m.Time) {
			return number
		}
	}
	return math.MaxUint64
}

// later returns a last segment to read that is twice as far from the first one.
func (x *Index) later(first uint64) uint64 {
	if next := x.until + (x.until - min(first, x.until)) + 1; next < x.Segments[len(x.Segments)-1] {
		return next
	}
	return math.MaxUint64
}

// guess returns the segment from which a state at a moment can probably be restored.
func (x *Index) guess(m Moment, id format.Digest) (uint64, error) {
	if m.Version != 0 {
		if err := x.readSnapshots(0, math.MaxUint64); err != nil {
			return 0, err
		}
	}
	if f := x.Mirrors[id]; f != nil {
		for _, s := range slices.Backward(f.Snapshots) {
			if s.Version <= m.Version {
				return max(s.After.Segment, x.start()), nil
			}
		}
	}
	for _, number := range slices.Backward(x.Segments) {
		if h, err := format.ReadHeader(x.folder, number); err == nil && (m.Version != 0 || !h.Time.After(m.Time)) {
			return max(h.Base, x.start()), nil
		}
	}
	return x.start(), nil
}

// start returns the number of the oldest segment.
func (x *Index) start() uint64 {
	if len(x.Segments) == 0 {
		return 0
	}
	return x.Segments[0]
}

// earlier returns a segment twice as far from the end of the log.
func (x *Index) earlier(first uint64) uint64 {
	last := x.Segments[len(x.Segments)-1]
	return max(x.start(), first-min(first, last-first+1))
}
