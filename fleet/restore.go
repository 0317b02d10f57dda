// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/watershed-project/watershed/fanout"
)

const (
	// fewMarks is how many marks a feed keeps, mostMarks how many while versions repeat
	// those from before a restore. A quiet watch brings one a minute.
	fewMarks, mostMarks = 8, 1024
)

// restore is what a feed remembers of the time before etcd was restored from a backup.
// A version up to last may be from before or from now. It counts as one from now if the
// feed has had it since the restore and not before. See docs/design/0010-replica.md.
type restore struct {
	// last is the highest version that the feed had before.
	last uint64
	// former are the versions from before that the feed still knew at the restore,
	// sorted. They are dropped after historyAge.
	former []uint64
	at     time.Time
}

// restartLocked begins a new era: etcd was restored from a backup, and versions from
// before mean something else now.
func (f *Feed) restartLocked(last *Moment, s state) {
	next := &restore{last: last.Version, at: time.Now()}
	next.former = append(f.versionsLocked(), f.marks...)
	if was := f.restored; was != nil {
		next.last = max(next.last, was.last)
		if time.Since(was.at) < historyAge {
			next.former = append(next.former, was.former...)
		}
	}
	next.former = slices.DeleteFunc(next.former, func(v uint64) bool { return v < s.Version() })
	slices.Sort(next.former)
	next.former = slices.Clip(slices.Compact(next.former))
	f.restored, f.marks, f.gaps, f.began = next, nil, nil, s.Version()
	now := &Moment{State: s, Version: s.Version(), Revision: last.Revision + 1}
	f.now.Store(now)
	f.log.Cut(now.Revision)
	f.markLocked(now.Version)
	f.wakeLocked(func(*waiter) bool { return true })
}

// versionsLocked returns the versions of the changes in the log.
func (f *Feed) versionsLocked() []uint64 {
	stats := f.log.Stats()
	all := make([]uint64, 0, stats.Changes)
	cursor, err := f.log.Cursor(stats.After, fanout.Everything())
	for err == nil && cursor.Position() < stats.Last {
		batch, failed := cursor.Next(context.Background()) // there is more, so it does not wait
		for i := range batch {
			all = append(all, batch[i].Version)
		}
		err = failed
	}
	return all
}

// markLocked remembers a version that a state has without a change of that version.
func (f *Feed) markLocked(version uint64) {
	if n := len(f.marks); n > 0 && f.marks[n-1] >= version {
		return
	}
	most := fewMarks
	if f.restored != nil && version <= f.restored.last {
		most = mostMarks
	}
	if len(f.marks) >= most {
		f.marks = slices.Delete(f.marks, 0, len(f.marks)-most+1)
	}
	f.marks = append(f.marks, version)
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
	if _, marked := slices.BinarySearch(f.marks, version); marked {
		return true
	}
	revision, err := f.log.Since(version)
	if err != nil {
		return false
	}
	// The change with that version is the one at the revision or, if several have
	// it, the next.
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
