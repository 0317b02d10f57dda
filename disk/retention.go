// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watershed-project/watershed/disk/internal/format"
	"github.com/watershed-project/watershed/disk/internal/reader"
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
	for _, c := range d.allClusters() {
		if c.off == nil { // files of a newer program stay as they are
			c.maintain(now)
			all = append(all, c.oldest())
		}
	}
	for _, g := range d.removeDeparted(now) {
		all = append(all, g.removal())
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
	d.mu.Lock()
	if d.settling && now.After(c.newest) {
		now = c.newest // the clock may be wrong after a start
	}
	cutoff := now.Add(-d.opts.Window)
	if c.heldLocked(now) {
		d.mu.Unlock()
		return
	}
	obsolete := c.forgetOldLocked()
	needed := min(c.neededLocked(false), c.log.neededAt(cutoff))
	d.mu.Unlock()
	c.removeSnapshots(obsolete)
	for c.log.removable(needed) {
		if !c.removeSegment() {
			return
		}
	}
	d.mu.Lock()
	obsolete = c.obsoleteLocked(cutoff)
	d.mu.Unlock()
	c.removeSnapshots(obsolete)
}

// heldLocked reports whether the removal of files waits for readers of the past, and records
// since when. It waits for a limited time, because reads may follow each other without end.
func (c *Cluster) heldLocked(now time.Time) bool {
	switch {
	case c.readers == 0:
		c.delayed = time.Time{}
	case c.delayed.IsZero():
		c.delayed = now
	case now.Sub(c.delayed) >= c.directory.limits.hold:
		c.delayed = time.Time{}
		return false
	}
	return c.readers > 0
}

// forgetOldLocked forgets the mirrors that are not open and need too much of the log, and
// returns their snapshots. It requests complete states of the open ones.
func (c *Cluster) forgetOldLocked() (obsolete []storedSnapshot) {
	d := c.directory
	var stored int64
	for _, m := range c.mirrors {
		stored += m.baseBytes
	}
	limit := max(d.limits.replay, stored)
	for key, m := range c.mirrors {
		switch old := m.base != 0 && c.log.since(m.base) > limit; {
		case old && m.closed:
			delete(c.mirrors, key)
			obsolete = append(obsolete, c.snapshotsLocked(m.digest)...)
		case old && m.accept:
			d.wantLocked(m)
		}
	}
	for _, f := range c.unclaimed {
		if c.log.since(f.Base) > limit || f.replaced && !c.log.has(f.Base) {
			obsolete = append(obsolete, c.forgetLocked(f)...)
		}
	}
	return obsolete
}

// forgetLocked forgets a mirror that has not been opened, and returns its snapshots.
func (c *Cluster) forgetLocked(f *unclaimed) []storedSnapshot {
	delete(c.unclaimed, f.Digest)
	return c.snapshotsLocked(f.Digest)
}

// snapshotsLocked returns the snapshots of a mirror.
func (c *Cluster) snapshotsLocked(id format.Digest) (all []storedSnapshot) {
	for _, s := range c.snapshots {
		if s.mirror == format.SnapshotNames(id) {
			all = append(all, s)
		}
	}
	return all
}

// olderLocked returns the snapshots whose mirror has a newer complete state, in the order
// of the log.
func (c *Cluster) olderLocked() (older []storedSnapshot) {
	if len(c.snapshots) == 0 {
		return nil
	}
	newest := map[string]string{}
	for key, f := range c.unclaimed {
		if newest[format.SnapshotNames(key)] = f.File(); f.replaced {
			newest[format.SnapshotNames(key)] = "" // only the past needs it
		}
	}
	for key, m := range c.mirrors {
		if m.base != 0 {
			newest[format.SnapshotNames(key)] = m.snapshot
		}
	}
	for _, s := range c.snapshots {
		if name, ok := newest[s.mirror]; ok && name != s.name {
			older = append(older, s)
		}
	}
	return older
}

// obsoleteLocked returns the snapshots that the window does not need: the mirror had a
// newer one when the window began, or the log does not continue it.
func (c *Cluster) obsoleteLocked(cutoff time.Time) (obsolete []storedSnapshot) {
	for _, s := range c.olderLocked() {
		replaced := slices.ContainsFunc(c.snapshots, func(other storedSnapshot) bool {
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
			c.directory.report(err)
			continue
		}
		c.directory.mu.Lock()
		c.snapshots = slices.DeleteFunc(c.snapshots, func(other storedSnapshot) bool { return other.name == s.name })
		c.directory.mu.Unlock()
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
		c.directory.report(err)
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

// removal returns the removal of all files of a cluster that has left.
func (g *departed) removal() *removal {
	return &removal{departed: g, total: g.bytes, possible: true, time: g.time}
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
		c.directory.mu.Lock()
		obsolete := c.obsoleteLocked(time.Time{})
		c.directory.mu.Unlock()
		c.removeSnapshots(obsolete)
	}
	return c.oldest()
}

// oldest returns the oldest file of the cluster that is not needed to restore its mirrors.
func (c *Cluster) oldest() *removal {
	c.directory.mu.Lock()
	older, needed, held := c.olderLocked(), c.neededLocked(false), !c.delayed.IsZero()
	c.directory.mu.Unlock()
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

// neededLocked returns the oldest segment that is needed to restore the mirrors: all, or those
// that no other has replaced.
func (c *Cluster) neededLocked(all bool) uint64 {
	oldest := c.log.next
	for _, f := range c.unclaimed {
		if f.Base != 0 && (all || !f.replaced) {
			oldest = min(oldest, f.Base)
		}
	}
	for _, m := range c.mirrors {
		for _, base := range []uint64{m.base, m.nextBase} {
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
		if size += s.size; size > limits.replay || i+1 < len(l.segments) && now.Sub(l.segments[i+1].began) > limits.window {
			break
		}
		from = s.number
	}
	return from
}

// addSnapshotLocked adds a snapshot. It may have replaced one with the same name.
func (c *Cluster) addSnapshotLocked(s storedSnapshot) {
	c.snapshots = slices.DeleteFunc(c.snapshots, func(other storedSnapshot) bool { return other.name == s.name })
	c.snapshots = append(c.snapshots, s)
}

// addSnapshots adds the snapshots that the files had when the cluster was opened.
func (c *Cluster) addSnapshots(x *reader.Index) {
	for _, f := range x.Mirrors {
		for _, s := range f.Snapshots {
			name, mirror := filepath.Base(s.Path), format.SnapshotNames(f.Digest)
			c.snapshots = append(c.snapshots, storedSnapshot{name, mirror, s.After, s.Time, s.Size})
		}
	}
	for name := range x.Damaged {
		s := storedSnapshot{name: name, mirror: name[:min(len(name), len(format.SnapshotNames(format.Digest{})))]}
		if info, err := os.Stat(filepath.Join(c.folder, name)); err == nil {
			s.bytes = info.Size()
		}
		c.snapshots = append(c.snapshots, s)
	}
	slices.SortFunc(c.snapshots, func(a, b storedSnapshot) int { return cmp.Compare(a.name, b.name) })
}
