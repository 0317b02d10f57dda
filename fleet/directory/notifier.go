// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"slices"
	"strings"

	"github.com/watershed-project/watershed/fleet"
)

// notifier calls notify with the entries of a source, but only if they have changed.
type notifier struct {
	notify func([]fleet.Entry)
	// last are the entries of the last call. They are valid if notified is set.
	last     []fleet.Entry
	notified bool
}

// update sorts the entries, whose names are distinct, and notifies if they differ from
// those of the last call. The notifier owns them afterwards.
func (n *notifier) update(entries []fleet.Entry) {
	slices.SortFunc(entries, func(a, b fleet.Entry) int { return strings.Compare(a.Name, b.Name) })
	if n.notified && slices.EqualFunc(n.last, entries, sameEntry) {
		return
	}
	n.last, n.notified = entries, true
	n.notify(copyEntries(entries))
}

// clashes records which clusters were left out because of their name, so that each is
// logged once for as long as it lasts.
type clashes struct{ previous, current map[string]bool }

// add records a clash of the current round and reports whether the previous round did
// not have it.
func (c *clashes) add(id string) (isNew bool) {
	if c.current == nil {
		c.current = map[string]bool{}
	}
	c.current[id] = true
	return !c.previous[id]
}

// done ends the round. Clashes that were not added in it are over.
func (c *clashes) done() { c.previous, c.current = c.current, nil }
