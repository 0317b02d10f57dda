// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// all yields the changes.
func (q *queuedBatch) all() iter.Seq[queuedChange] {
	return func(yield func(queuedChange) bool) {
		for i := range q.changes {
			c := queuedChange{Change: &q.changes[i]}
			if i < len(q.managers) {
				c.manager = q.managers[i]
			}
			if i < len(q.raw) {
				c.raw = q.raw[i]
			}
			if c.Type != delta.Sync && !yield(c) {
				return
			}
		}
	}
}

// rawOf returns the bytes of the new objects that are not packed.
func rawOf(changes []store.Change[*wire.Object]) [][]byte {
	all := make([][]byte, len(changes))
	for i := range changes {
		if o := changes[i].New; o != nil && !o.Packed() {
			all[i] = o.Bytes()
		}
	}
	return all
}

// objects yields the objects of a state as if they had been added.
func objects(s *Snapshot) iter.Seq[queuedChange] {
	return func(yield func(queuedChange) bool) {
		for key, o := range s.All() {
			if !yield(added(key, o)) {
				return
			}
		}
	}
}

// added returns an object of a state as if it had been added.
func added(key string, o *wire.Object) queuedChange {
	return queuedChange{Change: &store.Change[*wire.Object]{Type: delta.Added, Key: key, New: o, Version: o.Version()}}
}

// queueLocked adds a batch.
func (d *Directory) queueLocked(q queuedBatch) {
	d.queue = append(d.queue, q)
	d.queued += q.size
	q.mirror.queued += q.size
	notify(d.wake)
	if d.queued >= d.limits.chunk {
		notify(d.full)
	}
}

// roomLocked makes room for a batch of a mirror. It drops the batches of the mirrors that
// have most of them. It drops those of the mirror itself if that is not enough.
func (d *Directory) roomLocked(m *Mirror, size int64) {
	for d.queued+size > d.opts.Buffer {
		largest := m
		for i := range d.queue {
			if other := d.queue[i].mirror; other.queued > largest.queued {
				largest = other
			}
		}
		d.dropLocked(largest, nil)
		if largest == m {
			return
		}
	}
}

// dropLocked drops the queued batches of a mirror. It needs a complete state afterwards.
func (d *Directory) dropLocked(m *Mirror, err error) {
	kept := d.queue[:0]
	for _, q := range d.queue {
		if q.mirror == m {
			d.queued -= q.size
		} else {
			kept = append(kept, q)
		}
	}
	clear(d.queue[len(kept):])
	d.queue = kept
	m.queued, m.accept, m.linked = 0, false, false
	m.epoch++
	m.status.Dropped++
	if err != nil {
		m.status.Err = err
	}
	d.dropped++
	d.wantLocked(m)
}

// wantLocked requests a complete state of a mirror.
func (d *Directory) wantLocked(m *Mirror) {
	if !m.closed {
		d.wanting[m] = struct{}{}
		notify(d.wake)
	}
}
