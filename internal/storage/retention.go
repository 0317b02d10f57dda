// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
)

// storedSnapshot is a snapshot in the folder of a cluster. A damaged one has no place and
// no time.
type storedSnapshot struct {
	name string
	// mirror is the beginning of the names of the mirror's snapshots.
	mirror string
	after  format.Position
	time   time.Time
	bytes  int64
}

// maintain removes the files that are older than the window, and those that are too many.
func (d *Directory) maintain(now time.Time) {
	var all []*removal
	for _, c := range d.ledger.openClusters() {
		if c.off == nil { // files of a newer program stay as they are
			c.maintain(now)
			all = append(all, c.oldest())
		}
	}
	for _, g := range d.removeDeparted(now) {
		all = append(all, &removal{departed: g, total: g.bytes, possible: true, time: g.time})
	}
	d.limit(all)
}

// maintain removes files of a cluster that are older than the window, and requests complete
// states of mirrors that need too old ones.
func (c *Cluster) maintain(now time.Time) {
	d := c.directory
	c.fileMu.Lock()
	failed := c.failed
	c.fileMu.Unlock()
	if failed != nil {
		c.log.abandon(c, failed, now)
	}
	forgotten, needed, cutoff := d.ledger.retire(c, now, d.settling, d.opts.Window)
	if cutoff.IsZero() {
		return
	}
	c.removeSnapshots(forgotten)
	for c.log.removable(needed) {
		if !c.removeSegment() {
			return
		}
	}
	c.removeSnapshots(d.ledger.obsolete(c, cutoff))
}

// retire forgets the mirrors that need too much of the log. It returns their snapshots, the oldest
// segment that is needed, and when the window begins: the zero time while the removal of files waits
// for readers of the past. Settling means that the clock may be wrong.
func (l *ledger) retire(
	c *Cluster, now time.Time, settling bool, window time.Duration,
) (forgotten []storedSnapshot, needed uint64, cutoff time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if settling && now.After(c.entry.newest) {
		now = c.entry.newest // the clock may be wrong after a start
	}
	if l.heldLocked(c, now) {
		return nil, 0, cutoff
	}
	cutoff, forgotten = now.Add(-window), l.forgetOldLocked(c)
	return forgotten, min(neededLocked(c, false), c.log.neededAt(cutoff)), cutoff
}

// heldLocked reports whether the removal of files waits for readers of the past, and records
// since when. It waits for a limited time, because reads may follow each other without end.
func (l *ledger) heldLocked(c *Cluster, now time.Time) bool {
	switch {
	case c.entry.readers == 0:
		c.entry.delayed = time.Time{}
	case c.entry.delayed.IsZero():
		c.entry.delayed = now
	case now.Sub(c.entry.delayed) >= l.limits.hold:
		c.entry.delayed = time.Time{}
		return false
	}
	return c.entry.readers > 0
}

// forgetOldLocked forgets the mirrors that are not open and need too much of the log, and
// returns their snapshots. It requests complete states of the open ones.
func (l *ledger) forgetOldLocked(c *Cluster) (obsolete []storedSnapshot) {
	var stored int64
	for _, m := range c.entry.mirrors {
		stored += m.entry.baseBytes
	}
	limit := max(l.limits.replay, stored)
	for key, m := range c.entry.mirrors {
		switch old := m.entry.base != 0 && c.log.since(m.entry.base) > limit; {
		case old && m.entry.closed:
			delete(c.entry.mirrors, key)
			obsolete = append(obsolete, snapshotsLocked(c, m.digest)...)
		case old && m.entry.accept:
			l.wantLocked(m)
		}
	}
	for _, f := range c.entry.unclaimed {
		if c.log.since(f.Base) > limit || f.replaced && !c.log.has(f.Base) {
			delete(c.entry.unclaimed, f.Digest)
			obsolete = append(obsolete, snapshotsLocked(c, f.Digest)...)
		}
	}
	return obsolete
}

// snapshotsLocked returns the snapshots of a mirror.
func snapshotsLocked(c *Cluster, id format.Digest) (all []storedSnapshot) {
	for _, s := range c.entry.snapshots {
		if s.mirror == format.SnapshotNames(id) {
			all = append(all, s)
		}
	}
	return all
}

// olderLocked returns the snapshots whose mirror has a newer complete state, in the order
// of the log.
func olderLocked(c *Cluster) (older []storedSnapshot) {
	if len(c.entry.snapshots) == 0 {
		return nil
	}
	newest := map[string]string{}
	for key, f := range c.entry.unclaimed {
		if newest[format.SnapshotNames(key)] = f.File(); f.replaced {
			newest[format.SnapshotNames(key)] = "" // only the past needs it
		}
	}
	for key, m := range c.entry.mirrors {
		if m.entry.base != 0 {
			newest[format.SnapshotNames(key)] = m.entry.snapshot
		}
	}
	for _, s := range c.entry.snapshots {
		if name, ok := newest[s.mirror]; ok && name != s.name {
			older = append(older, s)
		}
	}
	return older
}

// older returns the snapshots whose mirror has a newer complete state, the oldest segment that is
// needed to restore the mirrors, and whether the removal of files waits for readers of the past.
func (l *ledger) older(c *Cluster) (snapshots []storedSnapshot, needed uint64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return olderLocked(c), neededLocked(c, false), !c.entry.delayed.IsZero()
}

// obsolete returns the snapshots that the window does not need: the mirror had a
// newer one when the window began, or the log does not continue it.
func (l *ledger) obsolete(c *Cluster, cutoff time.Time) (obsolete []storedSnapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range olderLocked(c) {
		replaced := slices.ContainsFunc(c.entry.snapshots, func(other storedSnapshot) bool {
			return other.mirror == s.mirror && s.after.Before(other.after) && !other.time.After(cutoff)
		})
		if replaced || len(c.log.segments) > 0 && s.after.Segment < c.log.segments[0].number {
			obsolete = append(obsolete, s)
		}
	}
	return obsolete
}

// removeSnapshots removes snapshots. One that cannot be removed is removed later.
func (c *Cluster) removeSnapshots(all []storedSnapshot) {
	if len(all) == 0 || c.sync() != nil {
		return // the newer state may be in the log, and must be durable
	}
	for _, s := range all {
		if err := os.Remove(filepath.Join(c.folder, s.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.directory.ledger.report(err)
			continue
		}
		c.directory.ledger.removed(c, s.name)
	}
}

// removeSegment removes the oldest segment. It returns false if that is not possible.
func (c *Cluster) removeSegment() bool {
	l := &c.log
	if c.sync() != nil {
		return false // the newer states may be in the log, and must be durable
	}
	err := os.Remove(filepath.Join(c.folder, format.SegmentName(l.segments[0].number)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.directory.ledger.report(err)
		return false
	}
	l.segments = l.segments[1:]
	return true
}

// removal is the oldest file of a cluster that is not needed to restore its mirrors.
type removal struct {
	// cluster is the open cluster, or else departed is one that has left.
	cluster  *Cluster
	departed *departed
	// total is the size of the cluster's log and its older snapshots.
	total int64
	// possible means that there is such a file, and time is when it became old. snapshot
	// is the file, nil for the oldest segment.
	possible bool
	time     time.Time
	snapshot *storedSnapshot
}

// limit removes the oldest files of any cluster until the rest is within
// [Options.WindowBytes], or needed to restore the mirrors.
func (d *Directory) limit(oldest []*removal) {
	var total int64
	for _, r := range oldest {
		total += r.total
	}
	for total > d.opts.WindowBytes {
		next := -1
		for i, r := range oldest {
			if r.possible && (next < 0 || r.time.Before(oldest[next].time)) {
				next = i
			}
		}
		if next < 0 {
			return // the rest is needed
		}
		before := oldest[next]
		oldest[next] = before.remove()
		if total += oldest[next].total - before.total; oldest[next].total >= before.total {
			return // a file cannot be removed
		}
	}
}

// remove removes the file, and the snapshots that the log does not continue any more. It
// returns the next removal of the cluster.
func (r *removal) remove() *removal {
	c := r.cluster
	switch {
	case r.departed != nil && r.departed.remove():
		return &removal{}
	case r.departed != nil:
		return r
	case r.snapshot != nil:
		c.removeSnapshots([]storedSnapshot{*r.snapshot})
	case c.removeSegment():
		c.removeSnapshots(c.directory.ledger.obsolete(c, time.Time{}))
	}
	return c.oldest()
}

// oldest returns the oldest file of the cluster that is not needed to restore its mirrors.
func (c *Cluster) oldest() *removal {
	older, needed, held := c.directory.ledger.older(c)
	r := &removal{cluster: c, total: c.log.since(0)}
	if !held && c.log.removable(needed) {
		r.possible, r.time = true, c.log.segments[1].began
	}
	for i := range older {
		s := &older[i]
		r.total += s.bytes
		if !held && (!r.possible || s.time.Before(r.time)) {
			r.possible, r.time, r.snapshot = true, s.time, s
		}
	}
	return r
}

// needed returns the oldest segment that is needed to restore the mirrors: those that no other has
// replaced, and all.
func (l *ledger) needed(c *Cluster) (unreplaced, all uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return neededLocked(c, false), neededLocked(c, true)
}

// neededLocked returns the oldest segment that is needed to restore the mirrors: all, or those
// that no other has replaced.
func neededLocked(c *Cluster, all bool) uint64 {
	oldest := c.log.next
	for _, f := range c.entry.unclaimed {
		if f.Base != 0 && (all || !f.replaced) {
			oldest = min(oldest, f.Base)
		}
	}
	for _, m := range c.entry.mirrors {
		for _, base := range []uint64{m.entry.base, m.entry.nextBase} {
			if base != 0 {
				oldest = min(oldest, base)
			}
		}
	}
	return oldest
}

// removable reports whether the oldest segment is before one that is needed.
func (l *clusterLog) removable(needed uint64) bool {
	return len(l.segments) > 1 && l.segments[0].number < needed
}

// has reports whether a segment is in the folder, or is not written yet.
func (l *clusterLog) has(number uint64) bool {
	return len(l.segments) == 0 || l.segments[0].number <= number
}

// since returns the bytes of a segment and the later ones.
func (l *clusterLog) since(number uint64) (n int64) {
	for i := range l.segments {
		if l.segments[i].number >= number {
			n += l.segments[i].size
		}
	}
	return n
}

// neededAt returns the oldest segment that is needed to restore the mirrors as they were
// at a time, 0 if the log is not that old. Segments after it lead on from there.
func (l *clusterLog) neededAt(t time.Time) (base uint64) {
	for i := range l.segments {
		if s := &l.segments[i]; s.base != 0 && !s.began.After(t) {
			base = s.base
		}
	}
	return base
}

// from returns the first segment that the next process reads, if the mirrors need the
// segments from needed on. It includes the recent changes, and the complete states before
// them, as far as the limit of a replay permits.
func (l *clusterLog) from(limits limits, needed uint64, now time.Time) uint64 {
	recent := l.recent(limits, now)
	for i := range l.segments {
		if s := &l.segments[i]; s.number >= recent && s.base != 0 && l.since(s.base) <= limits.replay {
			return min(needed, s.base)
		}
	}
	return min(needed, recent)
}

// recent returns the first segment of the window that mirrors are loaded with.
func (l *clusterLog) recent(limits limits, now time.Time) uint64 {
	from, size := l.next, int64(0)
	for i := len(l.segments) - 1; i >= 0; i-- {
		s := &l.segments[i]
		if size += s.size; size > limits.replay ||
			i+1 < len(l.segments) && now.Sub(l.segments[i+1].began) > limits.window {
			break
		}
		from = s.number
	}
	return from
}

// removeSnapshotLocked forgets a snapshot.
func removeSnapshotLocked(c *Cluster, name string) {
	c.entry.snapshots = slices.DeleteFunc(c.entry.snapshots, func(s storedSnapshot) bool { return s.name == name })
}

// removed records that the file of a snapshot was removed.
func (l *ledger) removed(c *Cluster, snapshot string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	removeSnapshotLocked(c, snapshot)
}

// storedSnapshots returns the snapshots that the files have when a cluster is opened.
func storedSnapshots(folder string, x *reader.Index) (all []storedSnapshot) {
	for _, f := range x.Mirrors {
		for _, s := range f.Snapshots {
			name, mirror := filepath.Base(s.Path), format.SnapshotNames(f.Digest)
			all = append(all, storedSnapshot{name, mirror, s.After, s.Time, s.Size})
		}
	}
	for name := range x.Damaged {
		s := storedSnapshot{name: name, mirror: name[:min(len(name), len(format.SnapshotNames(format.Digest{})))]}
		if info, err := os.Stat(filepath.Join(folder, name)); err == nil {
			s.bytes = info.Size()
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b storedSnapshot) int { return cmp.Compare(a.name, b.name) })
	return all
}
