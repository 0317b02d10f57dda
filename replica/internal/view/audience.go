// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"container/list"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
)

// Audience is the part of the fleet that a caller sees, and since when. Nil means the whole
// fleet, for a request without access control.
type Audience struct {
	// Set identifies the members that the caller sees. [AllMembers] stands for all, also
	// those that join later.
	Set string
	// Names are the names of those members, sorted, unless the set is [AllMembers].
	Names []string
	// Sets, Caller and List say where it is recorded since when the caller sees the set.
	// Sets is nil for a request that needs no version.
	Sets   *Sets
	Caller string
	List   ListID
}

// ListID identifies a list or a watch of a caller. It is a hash, because selectors can be long and
// are remembered after the list.
type ListID [sha256.Size]byte

// NewListID returns the identity of a list by everything that an authorizer may decide by.
func NewListID(parts ...string) ListID { return sha256.Sum256([]byte(strings.Join(parts, "\x00"))) }

// AllMembers is the set of a caller that sees all members.
const AllMembers = "*"

// restricted reports whether the caller sees only some members.
func (a *Audience) restricted() bool { return a != nil && a.Set != AllMembers }

// has reports whether the set has the member with a name.
func (a *Audience) has(name string) bool {
	if !a.restricted() {
		return true
	}
	_, ok := slices.BinarySearch(a.Names, name)
	return ok
}

// began returns the version at which the caller began to see the set, 0 if versions are not
// bound to callers. Versions before it may be those of states with other members.
func (a *Audience) began(reserve func() uint64) uint64 {
	if a == nil || a.Sets == nil {
		return 0
	}
	return a.Sets.began(a.Caller, a.List, a.Set, reserve)
}

// restart makes the caller begin again, and returns the version.
func (a *Audience) restart(reserve func() uint64) uint64 {
	if a == nil || a.Sets == nil {
		return 0
	}
	return a.Sets.restart(a.Caller, a.List, a.Set, reserve)
}

const (
	// maxSets limits how many lists of callers are remembered: some 400 bytes each.
	maxSets = 10_000
	// maxSetsOfCaller limits the same for one caller, so that one caller cannot displace
	// the others.
	maxSetsOfCaller = 256
)

// Sets records for each caller, and each list that it has read, which set of members it saw
// and since which version. The least recently used entries are dropped: their callers have
// to list again. The zero value is ready to use. All methods are safe for concurrent use.
type Sets struct {
	mu      sync.Mutex
	callers map[string]*callerSets
	// recent has the callers, the least recently used first.
	recent list.List
	total  int
}

type callerSets struct {
	caller string
	place  *list.Element
	lists  map[ListID]*list.Element
	// recent has the *listSet of the lists, the least recently used first.
	recent list.List
}

type listSet struct {
	list  ListID
	set   string
	began uint64
}

// began returns the version at which a caller began to see a set in a list. If it saw
// another set before, or is not known, it begins now.
func (s *Sets) began(caller string, name ListID, set string, reserve func() uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.entryLocked(caller, name)
	if entry.set != set {
		entry.set, entry.began = set, reserve()
	}
	return entry.began
}

// restart makes a caller begin again to see a set in a list.
func (s *Sets) restart(caller string, name ListID, set string, reserve func() uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.entryLocked(caller, name)
	entry.set, entry.began = set, reserve()
	return entry.began
}

// entryLocked returns the entry of a caller's list, which is empty if it is new.
func (s *Sets) entryLocked(caller string, name ListID) *listSet {
	c := s.callers[caller]
	if c == nil {
		if s.callers == nil {
			s.callers = map[string]*callerSets{}
		}
		c = &callerSets{caller: caller, lists: map[ListID]*list.Element{}}
		c.place = s.recent.PushBack(c)
		s.callers[caller] = c
	}
	s.recent.MoveToBack(c.place)
	if place := c.lists[name]; place != nil {
		c.recent.MoveToBack(place)
		return place.Value.(*listSet)
	}
	entry := &listSet{list: name}
	c.lists[name] = c.recent.PushBack(entry)
	s.total++
	if len(c.lists) > maxSetsOfCaller {
		s.dropLocked(c)
	}
	if s.total > maxSets {
		s.dropLocked(s.recent.Front().Value.(*callerSets))
	}
	return entry
}

// dropLocked drops the least recently used list of a caller.
func (s *Sets) dropLocked(c *callerSets) {
	oldest := c.recent.Remove(c.recent.Front()).(*listSet)
	delete(c.lists, oldest.list)
	s.total--
	if len(c.lists) == 0 {
		s.recent.Remove(c.place)
		delete(s.callers, c.caller)
	}
}
