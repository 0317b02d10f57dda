// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
)

// pod is the object of the tests. Text distinguishes two objects with the same version,
// which a restored server can have.
type pod struct {
	Name    string
	Version int
	Text    string
}

func podKey(p pod) string { return p.Name }

// kind is the kind of a request.
type kind string

const (
	lists   kind = "list"
	watches kind = "watch"
	serves  kind = "served"
	gets    kind = "get"
)

// streaming is how a server handles a request for initial events.
type streaming int

const (
	streams streaming = iota
	// refuses means that the server rejects the parameter.
	refuses
	// ignores means that the server begins a plain watch. That is not allowed, but old
	// servers did it.
	ignores
)

// fault describes the failure of one request. The zero value is no failure.
type fault struct {
	// err is the error of the request.
	err error
	// hang means that there is no response at all.
	hang bool
	// delay is how long the request is on its way.
	delay time.Duration
	// cut is the error after that many objects or events.
	cut   error
	after int
	// deaf means silence after that many objects or events.
	deaf bool
	// pace is the time before each object or event.
	pace time.Duration
	// stale is the version of the state to return for a list.
	stale int
	// skipped is how many objects of a list cannot be read, from the first.
	skipped int
	// skippedKey is the key in their errors.
	skippedKey string
	// first has the items that a watch returns before anything else.
	first []item
}

// item is one result of Next.
type item struct {
	event reflector.Event[pod]
	err   error
}

// request is a request that the server received.
type request struct {
	at   time.Time
	what string
}

// server is a simple model of a server: a log of all events, from which any state can be
// computed, and the version before which it reports versions as expired.
type server struct {
	mode streaming
	// marks is the interval of bookmarks, 0 for none.
	marks time.Duration
	// unversioned means that lists and events have no version, as with some extension API
	// servers.
	unversioned bool
	// careless means that the server ignores that nothing is selected.
	careless bool
	// choose returns the fault of a request for which none is scripted.
	choose func(kind) fault

	mu        sync.Mutex
	version   int
	log       []reflector.Event[pod]
	forgotten int
	absent    bool
	faults    map[kind][]fault
	requests  []request
	open      map[*watch]struct{}
	// last is when the latest watch is to end.
	last time.Time
}

func newServer() *server {
	return &server{marks: time.Minute, faults: map[kind][]fault{}, open: map[*watch]struct{}{}}
}

// put writes an object.
func (s *server) put(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	typ := delta.Added
	if _, ok := s.stateLocked(s.version)[name]; ok {
		typ = delta.Updated
	}
	s.version++
	s.happenLocked(event(typ, pod{name, s.version, text}))
}

// del deletes an object that exists.
func (s *server) del(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.stateLocked(s.version)[name]
	s.version++
	last.Version = s.version
	s.happenLocked(event(delta.Deleted, last))
}

// delUnseen deletes an object without an event in the watches.
func (s *server) delUnseen(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.stateLocked(s.version)[name]
	s.version++
	last.Version = s.version
	s.log = append(s.log, event(delta.Deleted, last))
}

// skip advances the version by changes of other resources.
func (s *server) skip(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += n
}

func event(typ delta.Type, p pod) reflector.Event[pod] {
	return reflector.Event[pod]{Type: typ, Object: p, Version: fmt.Sprint(p.Version)}
}

func (s *server) happenLocked(e reflector.Event[pod]) {
	s.log = append(s.log, e)
	for w := range s.open {
		if e.Object.Version > w.from {
			w.pushLocked(item{event: e})
		}
	}
}

// forget makes all versions before the current one too old.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = s.version
}

// restore sets the server back to a version, which ends all watches.
func (s *server) restore(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.forgotten = version, min(s.forgotten, version)
	s.log = slices.DeleteFunc(s.log, func(e reflector.Event[pod]) bool { return e.Object.Version > version })
	s.pushAllLocked(item{err: errReset})
}

// vanish removes the resource, all its objects and their history.
func (s *server) vanish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.stateLocked(s.version) {
		s.version++
		p.Version = s.version
		s.log = append(s.log, event(delta.Deleted, p))
	}
	s.absent, s.forgotten = true, s.version
	s.pushAllLocked(item{err: notServed})
}

// hide removes the resource and leaves watches open.
func (s *server) hide() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.absent = true
}

func (s *server) appear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.absent = false
}

// send puts items into all watches.
func (s *server) send(items ...item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushAllLocked(items...)
}

func (s *server) pushAllLocked(items ...item) {
	for w := range s.open {
		w.pushLocked(items...)
	}
}

// deafen makes all watches half-open: they stay open and receive nothing.
func (s *server) deafen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.deaf = true
	}
}

// fail scripts the faults of the next requests of a kind.
func (s *server) fail(k kind, faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[k] = append(s.faults[k], faults...)
}

// state returns the objects of the server.
func (s *server) state() map[string]pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateLocked(s.version)
}

func (s *server) at() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// stateLocked returns the objects of the server at a version.
func (s *server) stateLocked(version int) map[string]pod {
	state := map[string]pod{}
	for _, e := range s.log {
		switch {
		case e.Object.Version > version:
		case e.Type == delta.Deleted:
			delete(state, e.Object.Name)
		default:
			state[e.Object.Name] = e.Object
		}
	}
	return state
}

// got returns the requests since the last call, in order.
func (s *server) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var whats []string
	for _, r := range s.requests {
		whats = append(whats, r.what)
	}
	s.requests = nil
	return whats
}

// times returns the times of the requests since the last got.
func (s *server) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var times []time.Time
	for _, r := range s.requests {
		times = append(times, r.at)
	}
	return times
}

// ask records a request and returns its fault.
func (s *server) ask(k kind, what string) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request{time.Now(), what})
	if queue := s.faults[k]; len(queue) > 0 {
		s.faults[k] = queue[1:]
		return queue[0]
	}
	if s.choose != nil {
		return s.choose(k)
	}
	return fault{}
}

// sorted returns a state in the order of a list.
func sorted(state map[string]pod) []pod {
	var pods []pod
	for _, name := range slices.Sorted(maps.Keys(state)) {
		pods = append(pods, state[name])
	}
	return pods
}

// Errors of the server.
var (
	errReset     = errors.New("connection reset")
	expired      = &reflector.Error{Reason: reflector.Expired, Err: errors.New("too old resource version")}
	tooLarge     = &reflector.Error{Reason: reflector.TooLarge, Err: errors.New("too large resource version")}
	refused      = &reflector.Error{Reason: reflector.Refused, Err: errors.New("connection refused")}
	internal     = &reflector.Error{Reason: reflector.Internal, Err: errors.New("internal error")}
	notServed    = &reflector.Error{Reason: reflector.NotServed, Err: errors.New("page not found")}
	notSupported = &reflector.Error{Reason: reflector.NotSupported, Err: errors.New("sendInitialEvents is forbidden")}
	errUnmatched = errors.New("resourceVersionMatch is forbidden unless resourceVersion is provided")
)

// end is the end of a watch in good order.
var end = item{err: io.EOF}

func busy(after time.Duration) error {
	return &reflector.Error{Reason: reflector.Busy, RetryAfter: after, Err: errors.New("too many requests")}
}
