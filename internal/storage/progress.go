// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"cmp"
	"fmt"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// has reports whether there is a complete state of a mirror.
func (l *ledger) has(c *Cluster, key format.Digest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := c.entry.unclaimed[key]; f != nil && f.Base != 0 {
		return true
	}
	m := c.entry.mirrors[key]
	return m != nil && m.entry.base != 0
}

// openMirror adds a mirror. It takes over what the ledger has of the stored mirror with the same
// identity, and of the last handle.
func (l *ledger) openMirror(c *Cluster, m *Mirror) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := c.entry.mirrors[m.digest]; other != nil {
		if !other.entry.closed {
			return fmt.Errorf("disk: %v is already open", m.id)
		}
		l.dropLocked(other, nil)
		l.forgetLocked(other)
		m.entry.base, m.entry.baseBytes = other.entry.base, other.entry.baseBytes
		m.entry.snapshot = other.entry.snapshot
		m.entry.written = other.entry.written
	}
	switch {
	case c.off != nil:
		m.entry.status.Err = c.off
	case c.problem != nil:
		m.entry.status.Err = c.problem
	case format.Sealed(m.id) && c.directory.opts.Keys == nil:
		m.entry.status.Err, m.entry.closed = format.ErrLocked, true
	}
	for key, f := range c.entry.unclaimed {
		if key != m.digest && m.id.Replaces(f.Identity) {
			c.entry.mismatched[m.digest], f.replaced = f.Identity, true
		}
	}
	name, damaged := c.index.DamagedSnapshot(m.digest)
	m.entry.snapshot = cmp.Or(m.entry.snapshot, name)
	f := c.entry.unclaimed[m.digest]
	if f != nil {
		m.entry.stored, m.entry.base, m.entry.snapshot = f, f.Base, cmp.Or(f.File(), m.entry.snapshot)
	}
	if m.entry.written == nil && (f != nil || damaged != nil || c.problem != nil) {
		m.entry.written = &format.Stamp{} // what the files have is not known unless the mirror is loaded
	}
	if m.entry.closed { // without a key
		if f != nil {
			f.replaced = true
		}
		return nil
	}
	delete(c.entry.unclaimed, m.digest)
	c.entry.mirrors[m.digest] = m
	return nil
}

// status returns the progress of a mirror.
func (l *ledger) status(m *Mirror) MirrorStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := m.entry.status
	s.Behind = !m.entry.linked
	return s
}

// stored returns a copy of what the files have of a mirror, because append may release the frames.
// Known means that there is something. The error is why nothing can be read.
func (l *ledger) stored(m *Mirror) (f reader.Found, known bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known = m.entry.stored != nil; known {
		f = *m.entry.stored.Found
	}
	return f, known, m.entry.status.Err
}

// loaded records that the next batch continues a state. It returns false if a batch was appended
// meanwhile, or the mirror was closed.
func (l *ledger) loaded(m *Mirror, f *reader.Found, s *State) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.entry.stored == nil || m.entry.closed {
		return false
	}
	m.resumed, m.version, m.restored = true, s.Version, s.Restored
	m.entry.accept, m.entry.linked = true, true
	m.entry.written = &format.Stamp{Version: s.Version, Time: s.Time}
	m.entry.newest = appended{known: true, version: s.Version, restored: s.Restored}
	m.entry.base = f.Base
	m.entry.logBytes = f.Bytes
	m.entry.status.Version = s.Version
	if snap := f.Newest(); snap != nil {
		m.entry.baseBytes = snap.Size
	}
	return true
}

// mismatched returns the stored identity that a mirror has replaced, if it has replaced one.
func (l *ledger) mismatched(c *Cluster, key format.Digest) (Identity, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok := c.entry.mismatched[key]
	return id, ok
}

// append queues a batch, or drops it if a complete state has to be written first. Size is what the
// batch takes in memory.
func (l *ledger) append(m *Mirror, b Batch, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.entry.closed || m.cluster.off != nil {
		return
	}
	if m.entry.stored != nil {
		m.entry.stored.Frames, m.entry.stored = nil, nil
	}
	b.Time = later(m.cluster.entry.newest, b.Time)
	m.cluster.entry.newest = b.Time
	m.entry.open = b.Open || b.Vague
	if b.Vague && m.entry.accept {
		l.dropLocked(m, nil)
	}
	if b.Vague {
		return
	}
	if !b.Open {
		m.entry.latest, m.entry.latestTime, m.entry.newest = b.State, b.Time, m.entry.newest.next(b.State, b.Time)
	}
	if m.entry.accept {
		l.roomLocked(m, size)
	}
	if !m.entry.accept {
		l.wantLocked(m)
		return
	}
	q := queuedBatch{
		mirror: m, epoch: m.entry.epoch, size: size, changes: b.Changes, packed: b.Packed, managers: b.Managers,
		restored: m.entry.newest.restored,
	}
	q.Version, q.Era, q.Time = b.State.Version(), b.State.Era(), b.Time
	if b.Open {
		// The version of a state between two others has no meaning.
		q.Version, q.Flags = 0, format.OpenBatch
	}
	if b.Listed {
		q.Flags |= format.ListedBatch
	}
	l.queueLocked(q)
}

// closeMirror ends a mirror.
func (l *ledger) closeMirror(m *Mirror) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.entry.closed {
		return
	}
	if m.entry.stored != nil { // the files are as they were before Mirror
		delete(m.cluster.entry.mirrors, m.digest)
		m.cluster.entry.unclaimed[m.digest] = m.entry.stored
	}
	if m.entry.linked || m.entry.open || m.entry.stored != nil {
		l.forgetLocked(m)
	}
	m.entry.closed, m.entry.stored = true, nil
}

// lastWritten returns the newest state that the files have, nil if they have none.
func (l *ledger) lastWritten(m *Mirror) *format.Stamp {
	l.mu.Lock()
	defer l.mu.Unlock()
	return m.entry.written
}

// forgetLocked forgets that a complete state was to be written.
func (l *ledger) forgetLocked(m *Mirror) {
	m.entry.latest = nil
	delete(l.wanting, m)
}

// wanted returns the newest states of the mirrors whose complete state is wanted and can be written
// now. Busy means that a snapshot is being written, and later that other mirrors have to wait.
func (l *ledger) wanted(now time.Time) (states map[*Mirror]*store.Snapshot[*wire.Object], busy, later bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	states = map[*Mirror]*store.Snapshot[*wire.Object]{}
	for m := range l.wanting {
		switch {
		case m.entry.open || m.entry.latest == nil: // the next batch wakes the writer
		case now.Before(m.entry.retry) || now.Before(m.cluster.log.retry):
			later = true
		default:
			states[m] = m.entry.latest
		}
	}
	return states, l.busy, later
}

// take empties the queue, and returns the batches and the complete states to write: those of the
// candidates that still want one. The value of a candidate is whether its state is large. The
// batches count as queued until written is called.
func (l *ledger) take(candidates map[*Mirror]bool) (queue []*queuedBatch, jobs []*stateJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue = l.takeLocked()
	for m, large := range candidates {
		if _, ok := l.wanting[m]; !ok || m.entry.open || m.entry.latest == nil {
			continue
		}
		delete(l.wanting, m)
		// The batches of this round must not request the state again.
		m.entry.accept, m.entry.logBytes, l.busy = true, 0, l.busy || large
		jobs = append(jobs, &stateJob{
			mirror: m, epoch: m.entry.epoch, state: m.entry.latest, time: m.entry.latestTime,
			restored: m.entry.newest.restored, large: large,
		})
		if m.entry.closed {
			m.entry.latest = nil
		}
	}
	return queue, jobs
}

// written records that batches of a size do not wait any more.
func (l *ledger) written(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued -= bytes
}

// drop drops the batches of a mirror: those that wait, and those that were taken. Its complete
// state is not written before retry.
func (l *ledger) drop(m *Mirror, err error, retry time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(m, err)
	m.oldest, m.entry.retry = m.entry.epoch, retry
}

// abandon drops the batches of all mirrors of a cluster after an error in a segment, nil if it was
// not created.
func (l *ledger) abandon(c *Cluster, failed *segmentInfo, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range c.entry.mirrors {
		if e := &m.entry; failed != nil && e.base == failed.number && e.snapshot == "" {
			e.base, e.snapshot = e.durable.base, e.durable.snapshot // the newest state may be lost
		}
		if m.entry.accept {
			l.dropLocked(m, err)
			m.oldest = m.entry.epoch
		}
	}
}

// batchWritten records that a batch is in the log, where it has a size.
func (l *ledger) batchWritten(q *queuedBatch, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches, l.changes = l.batches+1, l.changes+int64(len(q.changes))
	m := q.mirror
	m.entry.status.Version = m.version
	if q.Flags&format.OpenBatch == 0 {
		m.entry.written = &format.Stamp{Version: q.Version, Time: q.Time}
	}
	m.entry.logBytes += size
	if m.entry.linked && m.entry.logBytes > max(l.limits.minLog, m.entry.baseBytes) {
		l.wantLocked(m)
	}
}

// stateBegun records that the segment of a complete state is needed from now on, and which state it
// is.
func (l *ledger) stateBegun(m *Mirror, segment uint64, state *format.Stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.entry.nextBase, m.entry.written = segment, state
}

// stateWritten records that a complete state is written, in a snapshot or in the log, unless the log
// was abandoned meanwhile.
func (l *ledger) stateWritten(j *stateJob, snapshot string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e := j.mirror, &j.mirror.entry
	if j.epoch < m.oldest && !j.large {
		return
	}
	if snapshot != "" {
		c, names := m.cluster, format.SnapshotNames(m.digest)
		removeSnapshotLocked(c, snapshot) // it may replace one with the same name
		c.entry.snapshots = append(c.entry.snapshots, storedSnapshot{snapshot, names, j.after, j.time, j.bytes})
	}
	if e.base != j.after.Segment {
		e.durable = durableState{e.base, e.snapshot}
	}
	e.base = j.after.Segment
	e.nextBase = 0
	e.baseBytes = j.bytes
	e.snapshot = snapshot
	e.wait = 0
	if e.epoch == j.epoch {
		e.linked, e.status.Err, e.status.Version = true, nil, max(e.status.Version, j.state.Version())
	}
	if j.large {
		l.busy = false
		notify(l.wake)
	}
	l.snapshots++
}

// stateFailed requests the complete state again, after a while.
func (l *ledger) stateFailed(j *stateJob, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e := j.mirror, &j.mirror.entry
	e.wait = min(max(2*e.wait, l.limits.minRetry), l.limits.maxRetry)
	e.retry, e.nextBase = time.Now().Add(e.wait), 0
	if j.large {
		l.busy = false
	}
	if e.epoch == j.epoch && !e.linked {
		l.dropLocked(m, err)
	}
	l.wantLocked(m)
}
