// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"errors"
	"sync/atomic"

	"github.com/watershed-project/watershed/delta"
)

// Cause is why a reflector reads the whole state.
type Cause uint8

const (
	// Begun means that the reflector has begun to run.
	Begun Cause = iota
	// VersionExpired means that the source no longer has the changes since the last
	// version.
	VersionExpired
	// WentBack means that the source is behind the last version: it was restored from a
	// backup, or another server behind the same address lags.
	WentBack
	// NotFound means that the source did not have the resource, and has it again.
	NotFound
	// LostDeletion means that the watch had a deletion that could not be read.
	LostDeletion
	// Incomplete means that the last list had an object without a readable key, or that
	// there is no version to watch from.
	Incomplete
	// WatchFailed means that several watches in a row have failed without news.
	WatchFailed
	// Requested means that a caller wants the state to be read again, see [Reflector.Relist].
	Requested

	// Causes is the number of causes.
	Causes = iota
)

// String returns the cause in lower case, for messages and metrics.
func (c Cause) String() string {
	switch c {
	case Begun:
		return "begun"
	case VersionExpired:
		return "expired"
	case WentBack:
		return "went_back"
	case NotFound:
		return "not_found"
	case LostDeletion:
		return "lost_deletion"
	case Incomplete:
		return "incomplete"
	case Requested:
		return "requested"
	default:
		return "watch_failed"
	}
}

// Counters counts the work of reflectors. The zero value is ready to use. All methods are
// safe for concurrent use. Counters cost 200 bytes. An event costs one atomic addition,
// and an object of a list costs none.
type Counters struct {
	lists    [Causes]atomic.Uint64
	failures [reasons]atomic.Uint64
	events   [delta.Bookmark + 1]atomic.Uint64

	watches, silent, restores, dropped atomic.Uint64
}

// Counts is the content of [Counters] at one time.
type Counts struct {
	// Lists counts complete states that were read, by [Cause].
	Lists [Causes]uint64
	// Watches counts watches that were opened.
	Watches uint64
	// Added, Updated, Deleted and Bookmarks count the events of watches after their
	// initial state.
	Added, Updated, Deleted, Bookmarks uint64
	// Failures counts failed lists, watches, checks and calls of [Source.Served], by
	// [Reason]. Silent counts those that have ended because the source sent nothing. They
	// are not in Failures.
	Failures [reasons]uint64
	Silent   uint64
	// Restores counts how often the source was found to have gone back.
	Restores uint64
	// Dropped counts objects that could not be read, had no key, or were refused by the
	// queue's transform.
	Dropped uint64
}

// Counts returns the content.
func (c *Counters) Counts() Counts {
	n := Counts{
		Watches: c.watches.Load(), Silent: c.silent.Load(), Restores: c.restores.Load(), Dropped: c.dropped.Load(),
		Added: c.events[delta.Added].Load(), Updated: c.events[delta.Updated].Load(),
		Deleted: c.events[delta.Deleted].Load(), Bookmarks: c.events[delta.Bookmark].Load(),
	}
	for i := range c.lists {
		n.Lists[i] = c.lists[i].Load()
	}
	for i := range c.failures {
		n.Failures[i] = c.failures[i].Load()
	}
	return n
}

// listed counts a complete state, and whether the source had gone back.
func (c *Counters) listed(cause Cause, back bool) {
	c.lists[cause].Add(1)
	if back {
		c.restores.Add(1)
	}
}

// event counts an event of a watch. An event of unknown type is not counted.
func (c *Counters) event(t delta.Type) {
	if int(t) < len(c.events) {
		c.events[t].Add(1)
	}
}

// failed counts a failure.
func (c *Counters) failed(err error) {
	if errors.Is(err, errSilent) {
		c.silent.Add(1)
		return
	}
	c.failures[ReasonOf(err)].Add(1)
}
