// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audience

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// Visible is the part of the fleet that the caller of a request sees.
type Visible struct {
	// Members are the members that the caller sees, sorted by name.
	Members []*fleet.Member
	// Set identifies the members that can be read, and names are their names. If the
	// caller sees all members, names is nil and Set is view.AllMembers.
	Set   string
	names []string
	// forbidden and unavailable count the members that the caller does not see.
	forbidden, unavailable int
}

// Of returns the part of the fleet that a caller sees. Sees is called once for each member, and nil means all members.
// Unavailable is how many of the others are left out because their access review did not finish.
func Of(all []*fleet.Member, sees func(*fleet.Member) bool, unavailable int, sets *Membership) *Visible {
	if sees == nil {
		return &Visible{Members: all, Set: view.AllMembers}
	}
	seen := &Visible{Members: make([]*fleet.Member, 0, len(all)), names: []string{}}
	for _, m := range all {
		if sees(m) {
			seen.Members = append(seen.Members, m)
		}
	}
	own := readable(seen.Members)
	for _, m := range own {
		seen.names = append(seen.names, m.Name())
	}
	seen.Set = sets.setOf(own)
	hidden := len(all) - len(seen.Members)
	seen.unavailable = min(max(unavailable, 0), hidden)
	seen.forbidden = hidden - seen.unavailable
	return seen
}

// IsWhole reports whether the caller sees all members, also those that join later.
func (s *Visible) IsWhole() bool { return s.names == nil }

// Labelled returns the part of the members whose labels a selector matches.
func (s *Visible) Labelled(sets *Membership, selector labels.Selector) *Visible {
	some := &Visible{names: []string{}}
	var own []*fleet.Member
	for _, m := range s.Members {
		if !view.SelectsLabels(selector, m.Labels()) {
			continue
		}
		some.Members = append(some.Members, m)
		if s.Reads(m) && !m.Replaces() {
			own, some.names = append(own, m), append(some.names, m.Name())
		}
	}
	some.Set = sets.setOf(own)
	return some
}

// Has reports whether the caller sees a member.
func (s *Visible) Has(m *fleet.Member) bool {
	byName := func(m *fleet.Member, name string) int { return strings.Compare(m.Name(), name) }
	i, ok := slices.BinarySearchFunc(s.Members, m.Name(), byName)
	return ok && s.Members[i] == m
}

// Reads reports whether the objects of a member that is seen can be read. They cannot while
// its name may still lead to those of another cluster.
func (s *Visible) Reads(m *fleet.Member) bool {
	if s.names == nil {
		return true
	}
	_, ok := slices.BinarySearch(s.names, m.Name())
	return ok
}

// Audience returns what a view needs to know of a caller, nil if all members are read without access control.
func (s *Visible) Audience(caller string) *view.Audience {
	if s.names == nil && caller == "" {
		return nil
	}
	return &view.Audience{Set: s.Set, Names: s.names, Caller: caller}
}

// Warnings returns warnings with the numbers of members that are left out. They do not depend on the
// request, or a caller could find out which ones they are. "what" names what the caller may not
// read of these members, "" if it is everything.
func (s *Visible) Warnings(what string) []string {
	var all []string
	switch {
	case s.forbidden == 1:
		all = append(all, "1 cluster is left out: you may not read "+cmp.Or(what, "it"))
	case s.forbidden > 1:
		all = append(all, fmt.Sprintf("%d clusters are left out: you may not read %s",
			s.forbidden, cmp.Or(what, "them")))
	}
	switch {
	case s.unavailable == 1:
		all = append(all, "1 cluster is left out: its access review failed or took too long")
	case s.unavailable > 1:
		all = append(all, fmt.Sprintf("%d clusters are left out: their access reviews failed or took too long",
			s.unavailable))
	}
	return all
}
