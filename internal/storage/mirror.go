// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
)

// Status returns the progress of the mirror.
func (m *Mirror) Status() MirrorStatus { return m.cluster.directory.ledger.status(m) }

// Load reads the stored state, with at most window bytes of the batches that led to it. It
// begins at an older complete state if the files have one, so that the state of an object
// before each change is known. The objects before the first changes come on top of window.
// The first call of Append must continue that state. Without Load, or after an error, the
// first call of Append replaces the stored state. The error is a [*Rejection].
//
// Load reads files and takes time in proportion to the objects. It must not be called
// after Append. Until then, the places of the stored batches stay in memory: see [Mirror.Close].
func (m *Mirror) Load(window int64) (*State, error) {
	l := m.cluster.directory.ledger
	f, known, err := l.stored(m)
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
	if !l.loaded(m, &f, s) {
		return nil, reader.Reject(m.id, errors.New("load after append"))
	}
	return s, nil
}

// absent returns the error for a mirror of which nothing is stored.
func (c *Cluster) absent(id Identity) *Rejection {
	if other, ok := c.directory.ledger.mismatched(c, format.DigestOf(id)); ok {
		return &Rejection{Identity: id, Reason: reader.Mismatched, Err: id.Difference(other)}
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
	m.cluster.directory.ledger.append(m, b, size)
}

// Close ends the mirror. Its files stay, and queued batches are still written, and so is a
// complete state if there is none yet. If Append was not called, another handle of the mirror
// can load the files, whether this one has loaded them or not. Otherwise they can be loaded
// when the directory is opened again.
func (m *Mirror) Close() { m.cluster.directory.ledger.closeMirror(m) }
