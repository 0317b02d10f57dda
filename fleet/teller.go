// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"slices"
	"strings"
)

// teller knows what a directory has told, so that nothing is told twice.
type teller struct {
	tell func([]Entry)
	// last is what was told last, told that there is such a thing.
	last []Entry
	told bool
}

// update tells entries, which have different names, unless nobody could see a
// difference to what was told last.
func (r *teller) update(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	if r.told && slices.EqualFunc(r.last, entries, sameEntry) {
		return
	}
	r.last, r.told = entries, true
	r.tell(copyEntries(entries))
}

// sameEntry compares entries. Config is not compared: that is what Access is for.
func sameEntry(a, b Entry) bool {
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	if (a.Scope == nil) != (b.Scope == nil) || a.Scope != nil && *a.Scope != *b.Scope {
		return false
	}
	return a.Name == b.Name && a.Access == b.Access
}

// copyEntries are entries that belong to who is told.
func copyEntries(entries []Entry) []Entry {
	own := make([]Entry, len(entries))
	for i, e := range entries {
		e.Config = copyConfig(e.Config)
		if e.Scope != nil {
			e.Scope = new(*e.Scope)
		}
		own[i] = e
	}
	return own
}

// clashes are the names that more than one cluster has, to be told of once as long
// as they last.
type clashes struct{ known, found map[string]bool }

// add notes a clash and reports whether it is a new one.
func (c *clashes) add(id string) bool {
	if c.found == nil {
		c.found = map[string]bool{}
	}
	c.found[id] = true
	return !c.known[id]
}

// done ends a round: what was not added in it is over.
func (c *clashes) done() { c.known, c.found = c.found, nil }
