// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/watershed-project/watershed/fanout"
)

// mostMarks limits how many marks a feed keeps. A quiet watch adds one a minute.
const mostMarks = 1024

// versionMark is a version that a state had without a change with that version.
type versionMark struct {
	version uint64
	at      time.Time
}

// restore is what a feed remembers of the time before etcd was restored from a backup. A
// version up to last may be from before or after the restore. It counts as one from after
// if the feed has had it since the restore and not before. See
// docs/design/0010-replica.md.
type restore struct {
	// last is the highest version that the feed had before the restore.
	last uint64
	// former are the versions from before that the feed still had at the restore, sorted.
	// They are dropped after historyAge.
	former []uint64
	at     time.Time
}

// restartLocked begins a new era: etcd was restored from a backup, and earlier versions
// have another meaning now.
func (f *Feed) restartLocked(last *Moment, s state) {
	f.restored, f.marks, f.gaps, f.began = f.legacyLocked(last), nil, nil, s.Version()
	now := &Moment{State: s, Version: s.Version(), Revision: last.Revision + 1}
	f.now.Store(now)
	f.reached = now.Revision
	f.log.Cut(now.Revision)
	f.markLocked(now.Version)
	f.wakeLocked(func(*waiter) bool { return true })
}

// legacyLocked returns what the next era must remember of the versions so far.
func (f *Feed) legacyLocked(last *Moment) *restore {
	next := &restore{last: last.Version, at: time.Now()}
	// A list may also have returned the version of the change before those in the log.
	oldest := f.log.Oldest()
	next.former = append(f.versionsLocked(), last.Version, oldest, max(oldest, 1)-1)
	for _, m := range f.marks {
		next.former = append(next.former, m.version)
	}
	if was := f.restored; was != nil {
		next.last = max(next.last, was.last)
		if time.Since(was.at) < historyAge {
			next.former = append(next.former, was.former...)
		}
	}
	slices.Sort(next.former)
	next.former = slices.Clip(slices.Compact(next.former))
	return next
}

// versionsLocked returns the versions of the changes in the log.
func (f *Feed) versionsLocked() []uint64 {
	stats := f.log.Stats()
	all := make([]uint64, 0, stats.Changes)
	cursor, err := f.log.Cursor(stats.After, fanout.Everything())
	for err == nil && cursor.Position() < stats.Last {
		batch, failed := cursor.Next(context.Background()) // there are more, so it does not wait
		for i := range batch {
			all = append(all, batch[i].Version)
		}
		err = failed
	}
	return all
}

// markLocked records a version that a state has without a change with that version. The
// mark is dropped when the next mark is older than historyAge, the age limit of changes:
// a list with its version is older still. While versions repeat those from before a
// restore, marks are kept for longer.
func (f *Feed) markLocked(version uint64) {
	now, old := time.Now(), 0
	for old+1 < len(f.marks) && now.Sub(f.marks[old+1].at) > historyAge {
		old++
	}
	if f.restored != nil && version <= f.restored.last {
		old = 0
	}
	old = max(old, len(f.marks)-mostMarks+1)
	f.marks = append(slices.Delete(f.marks, 0, old), versionMark{version, now})
}

// doubtfulLocked reports whether a version may be from before a restore.
func (f *Feed) doubtfulLocked(version uint64, now *Moment) bool {
	was := f.restored
	switch {
	case was == nil:
		return false
	case version > now.Version:
		return now.Version <= was.last
	case version > was.last:
		return false
	}
	if was.former != nil && time.Since(was.at) > historyAge {
		was.former = nil
	}
	if _, former := slices.BinarySearch(was.former, version); former {
		return true
	}
	return version != now.Version && !f.hadLocked(version)
}

// hadLocked reports whether the feed is known to have had a version in this era.
func (f *Feed) hadLocked(version uint64) bool {
	if slices.ContainsFunc(f.marks, func(m versionMark) bool { return m.version == version }) {
		return true
	}
	revision, err := f.log.Since(version)
	if err != nil {
		return false
	}
	// The change with that version is the one at the revision or, if several have it, the
	// next.
	cursor, err := f.log.Cursor(max(revision, 1)-1, fanout.Everything())
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
