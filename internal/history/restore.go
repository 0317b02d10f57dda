// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"context"
	"slices"
	"time"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/wire"
)

// mostMarks limits how many marks a feed keeps. A quiet watch adds one a minute.
const mostMarks = 1024

// era records the versions that a feed has had since etcd was restored from a backup, or
// since its cluster has replaced another one. Earlier versions have another meaning. The
// feed's mu guards it.
type era struct {
	log *fanout.Log[*wire.Object]
	// marks are the newest versions that states had without a change, oldest first.
	marks []versionMark
	// restored is nil if etcd was never restored from a backup, and this cluster has not
	// replaced another one.
	restored *restore
}

// versionMark is a version that a state had without a change with that version.
type versionMark struct {
	version uint64
	at      time.Time
}

// restore is what a feed remembers of the time before etcd was restored from a backup. A
// version up to "highest" may be from before or after the restore. It counts as one from after
// if the feed has had it since the restore and not before. See
// docs/design/0010-replica.md.
type restore struct {
	// highest is the highest version that the feed had before the restore.
	highest uint64
	// earlier are the versions from before that the feed still had at the restore, sorted.
	// They are dropped after [objectlog.MaxAge].
	earlier []uint64
	at      time.Time
}

// carryOver returns the versions of this era that the next era must remember. "newest" is the
// version of its newest state.
func (e *era) carryOver(newest uint64) *restore {
	next := &restore{highest: newest, at: time.Now()}
	// A list may also have returned the version of the change before those in the log.
	oldest := e.log.Oldest()
	next.earlier = append(e.loggedVersions(), newest, oldest, max(oldest, 1)-1)
	for _, m := range e.marks {
		next.earlier = append(next.earlier, m.version)
	}
	if was := e.restored; was != nil {
		next.highest = max(next.highest, was.highest)
		if time.Since(was.at) < objectlog.MaxAge {
			next.earlier = append(next.earlier, was.earlier...)
		}
	}
	slices.Sort(next.earlier)
	next.earlier = slices.Clip(slices.Compact(next.earlier))
	return next
}

// with returns what is remembered of two times: before the restore, and before another one
// that may be nil.
func (r *restore) with(other *restore) *restore {
	if other == nil {
		return r
	}
	both := &restore{
		highest: max(r.highest, other.highest),
		earlier: slices.Concat(r.earlier, other.earlier),
		at:      r.at,
	}
	if other.at.After(both.at) {
		both.at = other.at
	}
	slices.Sort(both.earlier)
	return both
}

// loggedVersions returns the versions of the changes in the log.
func (e *era) loggedVersions() []uint64 {
	stats := e.log.Stats()
	all := make([]uint64, 0, stats.Changes)
	cursor, err := e.log.Cursor(stats.After, fanout.Everything())
	for err == nil && cursor.Position() < stats.Last {
		batch, failed := cursor.Next(context.Background()) // there are more, so it does not wait
		for i := range batch {
			all = append(all, batch[i].Version)
		}
		err = failed
	}
	return all
}

// mark records that a state had a version without a change. A mark is dropped once its successor is
// older than [objectlog.MaxAge], the age limit of changes. While versions are not above the highest
// one from before a restore, no mark is dropped for its age.
func (e *era) mark(version uint64) {
	now, old := time.Now(), 0
	for old+1 < len(e.marks) && now.Sub(e.marks[old+1].at) > objectlog.MaxAge {
		old++
	}
	if e.restored != nil && version <= e.restored.highest {
		old = 0
	}
	old = max(old, len(e.marks)-mostMarks+1)
	e.marks = append(slices.Delete(e.marks, 0, old), versionMark{version, now})
}

// mayPredateRestore reports whether a version may be from before a restore. "newest" is the
// version of the newest state.
func (e *era) mayPredateRestore(version, newest uint64) bool {
	was := e.restored
	switch {
	case was == nil:
		return false
	case version > newest:
		return newest <= was.highest
	case version > was.highest:
		return false
	}
	if was.earlier != nil && time.Since(was.at) > objectlog.MaxAge {
		was.earlier = nil
	}
	if _, earlier := slices.BinarySearch(was.earlier, version); earlier {
		return true
	}
	return version != newest && !e.hasVersion(version)
}

// hasVersion reports whether the feed is known to have had a version in this era.
func (e *era) hasVersion(version uint64) bool {
	if slices.ContainsFunc(e.marks, func(m versionMark) bool { return m.version == version }) {
		return true
	}
	revision, err := e.log.Since(version)
	if err != nil {
		return false
	}
	// The change with that version is the one at the revision or, if several have it, the
	// next.
	cursor, err := e.log.Cursor(max(revision, 1)-1, fanout.Everything())
	for range 2 {
		if err != nil {
			return false
		}
		batch, failed := cursor.TryNext()
		for i := range batch {
			if batch[i].Version >= version {
				return batch[i].Version == version
			}
		}
		err = failed
	}
	return false
}
