// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"errors"
	"time"

	"github.com/watershed-project/watershed/disk/internal/format"
	"github.com/watershed-project/watershed/disk/internal/reader"
)

// Status returns the progress of the mirror.
func (m *Mirror) Status() MirrorStatus {
	d := m.cluster.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	s := m.status
	s.Behind = !m.linked
	return s
}

// Load reads the stored state, with at most window bytes of the batches that led to it. It
// begins at an older complete state if the files have one, so that the state of an object
// before each change is known. The objects before the first changes come on top of window.
// The first call of Append must continue that state. Without Load, or after an error, the
// first call of Append replaces the stored state. The error is a [*Rejection].
//
// Load reads files and takes time in proportion to the objects. It must not be called
// after Append. Until then, the places of the stored batches stay in memory: see [Mirror.Close].
func (m *Mirror) Load(window int64) (*State, error) {
	d := m.cluster.directory
	var f reader.Found // Append may release its frames
	d.mu.Lock()
	known, err := m.stored != nil, m.status.Err
	if known {
		f = *m.stored.Found
	}
	d.mu.Unlock()
	switch {
	case err != nil:
		return nil, reader.Reject(m.id, err)
	case !known:
		return nil, m.cluster.absent(m.id)
	}
	s, err := m.cluster.past.Load(m.cluster.index, &f, m.opts.Kind, window)
	if s == nil {
		return nil, reader.Reject(m.id, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.stored == nil || m.closed {
		return nil, reader.Reject(m.id, errors.New("load after append"))
	}
	m.accept, m.linked, m.resumed, m.version, m.restored = true, true, true, s.Version, s.Restored
	m.written = &format.Stamp{Version: s.Version, Time: s.Time}
	m.newest = appended{known: true, version: s.Version, restored: s.Restored}
	m.base, m.logBytes, m.status.Version = f.Base, f.Bytes, s.Version
	if snap := f.Newest(); snap != nil {
		m.baseBytes = snap.Size
	}
	return s, nil
}

// absent returns the error for a mirror of which nothing is stored.
func (c *Cluster) absent(id Identity) *Rejection {
	c.directory.mu.Lock()
	defer c.directory.mu.Unlock()
	if other, ok := c.mismatched[format.DigestOf(id)]; ok {
		return &Rejection{Identity: id, Reason: Mismatched, Err: difference(other, id)}
	}
	_, err := c.index.DamagedSnapshot(format.DigestOf(id))
	return reader.Reject(id, err)
}

// Append stores a batch later. It never waits for a file. If the directory is too far
// behind, the mirror's batches are dropped, and a complete state is written later. Append
// keeps the batch's slices, which must not be modified.
func (m *Mirror) Append(b Batch) {
	if b.Time.IsZero() {
		b.Time = m.cluster.directory.clock.read(time.Now())
	}
	size := int64(200)
	for i := range b.Changes {
		size += int64(b.Changes[i].New.Size()) + 120
		if old := b.Changes[i].Old; old != nil {
			size += int64(old.Size())
		}
	}
	d := m.cluster.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.closed || m.cluster.off != nil {
		return
	}
	if m.stored != nil {
		m.stored.Frames, m.stored = nil, nil
	}
	b.Time = later(m.cluster.newest, b.Time)
	m.cluster.newest = b.Time
	m.open = b.Open || b.Vague
	if b.Vague && m.accept {
		d.dropLocked(m, nil)
	}
	if b.Vague {
		return
	}
	if !b.Open {
		m.latest, m.latestTime, m.newest = b.State, b.Time, m.newest.next(b.State, b.Time)
	}
	if m.accept {
		d.roomLocked(m, size)
	}
	if !m.accept {
		d.wantLocked(m)
		return
	}
	q := queuedBatch{
		mirror: m, epoch: m.epoch, size: size, changes: b.Changes, managers: b.Managers,
		raw: rawOf(b.Changes), restored: m.newest.restored,
	}
	q.Version, q.Era, q.Time = b.State.Version(), b.State.Era(), b.Time
	if b.Open {
		// The version of a state between two others has no meaning.
		q.Version, q.Flags = 0, format.OpenBatch
	}
	if b.Listed {
		q.Flags |= format.ListedBatch
	}
	d.queueLocked(q)
}

// Close ends the mirror. Its files stay, and queued batches are still written, and so is a
// complete state if there is none yet. If Append was not called, another handle of the mirror
// can load the files, whether this one has loaded them or not. Otherwise they can be loaded
// when the directory is opened again.
func (m *Mirror) Close() {
	d := m.cluster.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.closed {
		return
	}
	if m.stored != nil { // the files are as they were before Mirror
		delete(m.cluster.mirrors, m.digest)
		m.cluster.unclaimed[m.digest] = m.stored
	}
	if m.linked || m.open || m.stored != nil {
		m.forgetLocked()
	}
	m.closed, m.stored = true, nil
}

// lastWritten returns the newest state that the files have, nil if they have none.
func (m *Mirror) lastWritten() *format.Stamp {
	m.cluster.directory.mu.Lock()
	defer m.cluster.directory.mu.Unlock()
	return m.written
}

// forgetLocked forgets that a complete state was to be written.
func (m *Mirror) forgetLocked() {
	m.latest = nil
	delete(m.cluster.directory.wanting, m)
}
