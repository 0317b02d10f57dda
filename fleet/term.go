// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "github.com/watershed-project/watershed/fleet/internal/collection"

// Term is a period in which one process issues the revisions of one slot, see [Options.Term].
type Term = collection.Term

// GroupSlots is how many slots terms of [NewTerm] can have.
const GroupSlots = collection.GroupSlots

// NewTerm returns a term of a slot below [GroupSlots]. All its revisions are later than the time
// after, in microseconds since 1970. Now returns the time, or 0 while it is not known; revisions
// then grow by one for each change. No revision may be shown before the first [Term.Extend].
func NewTerm(slot int, after uint64, now func() uint64) *Term {
	return collection.NewTerm(slot, after, now)
}

// Term returns the present term. A program that shows revisions to others asks [Term.Allows] for
// each of them.
func (f *Fleet) Term() *Term { return f.settings.Term() }
