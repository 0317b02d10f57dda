// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"slices"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// gap is a range of versions that a list has skipped. The feed does not know what
// happened at the versions between after and before: an object may have been created and
// deleted.
//
// A list also finds differences whose versions are unknown, such as deletions. They have
// the version after, as if they had happened there: a client that has seen a part of a
// list's differences then holds a version that is complete, here and at the API server.
type gap struct {
	after, before uint64
	// again is the revision at which the feed first had the version after. A client that
	// resumes at that version receives everything since again: it may have seen the
	// version before the list or after it, and, if several changes have it, only the
	// first of them.
	again uint64
	// revision is that of the newest state with the version after.
	revision uint64
}

// mostGaps limits how many gaps a feed remembers. Versions before older gaps expire.
const mostGaps = 64

// passLocked records that a list led from the last state to one at a version, and how
// many differences it found.
func (f *Feed) passLocked(last *Moment, version uint64, differences int) {
	if differences == 0 && version <= last.Version+1 {
		return // nothing can have happened
	}
	next := gap{after: last.Version, before: version, again: f.reached, revision: last.Revision}
	if version == last.Version {
		next.revision += uint64(differences)
	}
	if n := len(f.gaps); n > 0 && f.gaps[n-1].after == last.Version {
		next.again, f.gaps = f.gaps[n-1].again, f.gaps[:n-1]
	}
	f.gaps = append(f.gaps, next)
	for len(f.gaps) > 1 && (len(f.gaps) > mostGaps || f.gaps[0].before < f.log.Oldest()) {
		f.began, f.gaps = max(f.began, f.gaps[0].before, f.gaps[0].after+1), f.gaps[1:]
	}
}

// gapAt returns the gap that begins at a version, or nil.
func (f *Feed) gapAt(version uint64) *gap {
	i, found := slices.BinarySearchFunc(f.gaps, version, func(g gap, v uint64) int { return cmp.Compare(g.after, v) })
	if !found {
		return nil
	}
	return &f.gaps[i]
}

// pastGaps returns the version itself, or the first one after the gap that it is in.
func (f *Feed) pastGaps(version uint64) uint64 {
	for _, g := range f.gaps {
		if g.after < version && version < g.before {
			return g.before
		}
	}
	return version
}

// net merges the changes of each object into one, from its first state to its last. A
// list that was interrupted and restarted reports an object twice.
func net(changes []store.Change[*wire.Object]) []store.Change[*wire.Object] {
	at := make(map[string]int, len(changes))
	all := changes[:0]
	for _, c := range changes {
		if c.Type == delta.Sync {
			continue
		}
		i, again := at[c.Key]
		if !again {
			at[c.Key] = len(all)
			all = append(all, c)
			continue
		}
		c.Old = all[i].Old
		switch {
		case c.Type == delta.Deleted:
		case c.Old == nil:
			c.Type = delta.Added
		default:
			c.Type = delta.Updated
		}
		all[i] = c
	}
	return slices.DeleteFunc(all, func(c store.Change[*wire.Object]) bool { return c.Type == delta.Deleted && c.Old == nil })
}

// inOrder sorts the differences that a list found since a version by their own versions.
// We cannot know when an object was deleted that is not in the list, nor why one differs
// whose version is not later. Those differences keep the version before the list and come
// first: a client that stops anywhere in between must not hold a later version without
// them.
func inOrder(changes []store.Change[*wire.Object], since uint64) []store.Change[*wire.Object] {
	for i := range changes {
		if c := &changes[i]; c.Type == delta.Deleted && c.Missed || c.Version <= since {
			c.Version = since
		}
	}
	slices.SortStableFunc(changes, func(a, b store.Change[*wire.Object]) int { return cmp.Compare(a.Version, b.Version) })
	return changes
}
