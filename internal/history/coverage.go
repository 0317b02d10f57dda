// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// gap is a range of versions that a list has skipped. The feed does not know what
// happened at the versions between "after" and "before": an object may have been created and
// deleted.
//
// A list also finds differences whose versions are unknown, such as deletions. They have
// the version "after", as if they had happened there: a client that has seen a part of a
// list's differences then holds a version that is complete, here and at the API server.
type gap struct {
	after, before uint64
	// firstRevision is the revision at which the feed first had the version "after". A client
	// that resumes at that version receives everything since again: it may have seen the
	// version before the list or after it, and, if several changes have it, only the
	// first of them.
	firstRevision uint64
	// lastRevision is that of the newest state with the version "after".
	lastRevision uint64
}

// mostGaps limits how many gaps a feed remembers. Versions before older gaps expire.
const mostGaps = 64

// earlierFor is how long after its first state a feed reports [ErrEarlier]. A client that went to
// another replica, or waited for a restart, comes within minutes. Later an API server does not have
// the changes any more, and a caller could only make the replica send requests.
const earlierFor = 10 * time.Minute

// coverage is the range of versions that a feed's log covers. The feed's mu guards it.
type coverage struct {
	// began is the version from which on the log is complete, except for the gaps.
	began uint64
	// earlier is until when a reader may read the changes before began from the API server, zero if
	// began is not the version of the first state any more.
	earlier time.Time
	// gaps are the newest gaps that lists have made, oldest first.
	gaps []gap
}

// add records a gap. Gaps before the oldest version of the log are dropped.
func (c *coverage) add(next gap, oldest uint64) {
	if n := len(c.gaps); n > 0 && c.gaps[n-1].after == next.after {
		next.firstRevision = c.gaps[n-1].firstRevision
		c.gaps = c.gaps[:n-1]
	}
	c.gaps = append(c.gaps, next)
	for len(c.gaps) > 1 && (len(c.gaps) > mostGaps || c.gaps[0].before < oldest) {
		c.began, c.earlier = max(c.began, c.gaps[0].before, c.gaps[0].after+1), time.Time{}
		c.gaps = c.gaps[1:]
	}
}

// coverageFrom returns the coverage of a feed whose first state has a version.
func coverageFrom(version uint64) coverage {
	return coverage{began: version, earlier: time.Now().Add(earlierFor)}
}

// gapAt returns the gap that begins at a version, or nil.
func (c *coverage) gapAt(version uint64) *gap {
	i, found := slices.BinarySearchFunc(c.gaps, version, func(g gap, v uint64) int {
		return cmp.Compare(g.after, v)
	})
	if !found {
		return nil
	}
	return &c.gaps[i]
}

// from returns the lowest version, not below the given one, after which no change can be missing.
func (c *coverage) from(version uint64) uint64 {
	for _, g := range c.gaps {
		if g.after < version && version < g.before {
			return max(c.began, g.before)
		}
	}
	return max(c.began, version)
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
	return slices.DeleteFunc(all, func(c store.Change[*wire.Object]) bool {
		return c.Type == delta.Deleted && c.Old == nil
	})
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
	slices.SortStableFunc(changes, func(a, b store.Change[*wire.Object]) int {
		return cmp.Compare(a.Version, b.Version)
	})
	return changes
}
