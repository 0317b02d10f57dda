// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// sight is the part of the fleet that the caller of a request sees.
type sight struct {
	// members are the members that the caller sees, sorted by name.
	members []*fleet.Member
	// names are the names of those that can be read, and set identifies them. If the
	// caller sees all members, names is nil and set is view.AllMembers.
	names []string
	set   string
	// forbidden and unavailable count the members that the caller does not see.
	forbidden, unavailable int
}

// sightOf returns what a caller sees of the fleet. The hook is asked once for each member.
func (s *Server) sightOf(a *Access) *sight {
	all := s.fleet.Members()
	if a == nil || a.Sees == nil {
		return &sight{members: all, set: view.AllMembers}
	}
	seen := &sight{members: make([]*fleet.Member, 0, len(all)), names: []string{}}
	for _, m := range all {
		if a.Sees(m) {
			seen.members = append(seen.members, m)
		}
	}
	own := readable(seen.members)
	for _, m := range own {
		seen.names = append(seen.names, m.Name())
	}
	seen.set = s.membership.setOf(own)
	hidden := len(all) - len(seen.members)
	seen.unavailable = min(max(a.Unavailable, 0), hidden)
	seen.forbidden = hidden - seen.unavailable
	return seen
}

// labelled returns the part of the sight whose labels a selector matches. Its names and its set
// are those of the members that can be read.
func (s *sight) labelled(all *membership, selector labels.Selector) *sight {
	some := &sight{names: []string{}}
	var own []*fleet.Member
	for _, m := range s.members {
		if !view.SelectsLabels(selector, m.Labels()) {
			continue
		}
		some.members = append(some.members, m)
		if s.reads(m) && !m.Replaces() {
			own, some.names = append(own, m), append(some.names, m.Name())
		}
	}
	some.set = all.setOf(own)
	return some
}

// sees reports whether a member is in the sight.
func (s *sight) sees(m *fleet.Member) bool {
	i, ok := slices.BinarySearchFunc(s.members, m.Name(), func(m *fleet.Member, name string) int { return strings.Compare(m.Name(), name) })
	return ok && s.members[i] == m
}

// reads reports whether the objects of a member that is seen can be read. They cannot while
// its name may still lead to those of another cluster.
func (s *sight) reads(m *fleet.Member) bool {
	if s.names == nil {
		return true
	}
	_, ok := slices.BinarySearch(s.names, m.Name())
	return ok
}

// audience returns what a list or a watch needs to know of the caller, nil if all members are
// read without access control. The list is identified by everything that an authorizer may decide by: members
// that are seen in one list need not be seen in another.
func (s *sight) audience(q *Request, sets *view.Sets) *view.Audience {
	if s.names == nil && q.caller() == "" {
		return nil
	}
	a := &view.Audience{Set: s.set, Names: s.names, Caller: q.caller()}
	if q.Verb == "list" || q.Verb == "watch" {
		a.Sets = sets
		a.List = view.NewListID(q.String(), q.Namespace, q.Name, q.Query.Get("fieldSelector"), q.Query.Get("labelSelector"))
	}
	return a
}

// warnings returns the numbers of members that are left out. They do not depend on the
// request, or a caller could find out which ones they are. "what" is what the caller may not read
// of these members, "" if it is everything.
func (s *sight) warnings(what string) []string {
	var all []string
	switch {
	case s.forbidden == 1:
		all = append(all, "1 cluster is left out: you may not read "+cmp.Or(what, "it"))
	case s.forbidden > 1:
		all = append(all, fmt.Sprintf("%d clusters are left out: you may not read %s", s.forbidden, cmp.Or(what, "them")))
	}
	switch {
	case s.unavailable == 1:
		all = append(all, "1 cluster is left out: its access review failed or took too long")
	case s.unavailable > 1:
		all = append(all, fmt.Sprintf("%d clusters are left out: their access reviews failed or took too long", s.unavailable))
	}
	return all
}
