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

// pod is the object of the tests. Text tells apart two objects that have the same
// version, as a restored server makes them.
type pod struct {
	Name    string
	Version int
	Text    string
}

func podKey(p pod) string { return p.Name }

// kind is what a request asks for.
type kind string

const (
	lists   kind = "list"
	watches kind = "watch"
	serves  kind = "served"
)

// streaming is how a server takes a request for initial events.
type streaming int

const (
	streams streaming = iota
	// refuses says that it does not know the parameter.
	refuses
	// ignores is what it must not do and old ones did: it begins a plain watch.
	ignores
)

// fault is what goes wrong with one request. The zero value is nothing.
type fault struct {
	// err is the answer.
	err error
	// hang is no answer at all.
	hang bool
	// cut comes after that many objects or events.
	cut   error
	after int
	// deaf is silence after that many objects or events.
	deaf bool
	// pace is the time before each object or event.
	pace time.Duration
	// stale answers a list with the state at that version.
	stale int
	// skipped is how many objects of a list cannot be read, from the first.
	skipped int
	// skippedKey is the key that is told of them.
	skippedKey string
	// first is what a watch brings before anything else.
	first []item
}

// item is one result of Next.
type item struct {
	event reflector.Event[pod]
	err   error
}

// request is one that the server got.
type request struct {
	at   time.Time
	what string
}

// server is a model of a server, as plain as its contract: a log of all that
// happened, from which any state can be had, and the point before which it says
// that it has forgotten.
type server struct {
	mode streaming
	// marks is how often there are bookmarks, 0 is never.
	marks time.Duration
	// unversioned answers lists and sends events without a version, as some extension API servers do.
	unversioned bool
	// choose picks faults for requests that have none scripted.
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

// del deletes an object that is there.
func (s *server) del(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.stateLocked(s.version)[name]
	s.version++
	last.Version = s.version
	s.happenLocked(event(delta.Deleted, last))
}

// delUnseen deletes an object and leaves watches alone.
func (s *server) delUnseen(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.stateLocked(s.version)[name]
	s.version++
	last.Version = s.version
	s.log = append(s.log, event(delta.Deleted, last))
}

// skip advances the version by something that is not of this resource.
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

// forget makes versions before this one too old.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = s.version
}

// restore puts the server back to a version, which ends all watches.
func (s *server) restore(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.forgotten = version, min(s.forgotten, version)
	s.log = slices.DeleteFunc(s.log, func(e reflector.Event[pod]) bool { return e.Object.Version > version })
	s.pushAllLocked(item{err: errReset})
}

// vanish removes the resource, all objects of it and the memory of them.
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

// hide removes the resource and leaves watches alone.
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

// send puts something into all watches.
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

// deafen makes all watches half-open: they stay and bring nothing.
func (s *server) deafen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.deaf = true
	}
}

// fail scripts what happens to the next requests of a kind.
func (s *server) fail(k kind, faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[k] = append(s.faults[k], faults...)
}

// state is what the server has.
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

// stateLocked is what the server had at a version.
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

// got is what was asked since it was last called, in order.
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

// times is when the requests since the last got were made.
func (s *server) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var times []time.Time
	for _, r := range s.requests {
		times = append(times, r.at)
	}
	return times
}

// ask notes a request and says what is to go wrong with it.
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

// sorted is a state in the order of a list.
func sorted(state map[string]pod) []pod {
	var pods []pod
	for _, name := range slices.Sorted(maps.Keys(state)) {
		pods = append(pods, state[name])
	}
	return pods
}

// Errors of the server's.
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
