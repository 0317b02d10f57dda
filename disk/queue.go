// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"container/heap"
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/disk/internal/format"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// all yields the changes.
func (q *queuedBatch) all() iter.Seq[format.QueuedChange] {
	return func(yield func(format.QueuedChange) bool) {
		for i := range q.changes {
			c := format.QueuedChange{Change: &q.changes[i]}
			if i < len(q.managers) {
				c.Manager = q.managers[i]
			}
			if i < len(q.raw) {
				c.Raw = q.raw[i]
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

// queueLocked adds a batch.
func (d *Directory) queueLocked(q queuedBatch) {
	m := q.mirror
	m.waiting = append(m.waiting, d.queue.PushBack(&q))
	d.queued += q.size
	if m.queued += q.size; len(m.waiting) == 1 {
		heap.Push(&d.fullest, m)
	} else {
		heap.Fix(&d.fullest, m.place)
	}
	notify(d.wake)
	if d.queued >= d.limits.chunk {
		notify(d.full)
	}
}

// takeLocked empties the queue. The batches count as queued until they are written.
func (d *Directory) takeLocked() (all []*queuedBatch) {
	all = make([]*queuedBatch, 0, d.queue.Len())
	for e := d.queue.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*queuedBatch))
	}
	for _, m := range d.fullest {
		m.waiting, m.queued = nil, 0
	}
	d.queue.Init()
	d.fullest = nil
	return all
}

// Len implements heap.Interface.
func (f fullest) Len() int { return len(f) }

// Less implements heap.Interface.
func (f fullest) Less(i, j int) bool { return f[i].queued > f[j].queued }

// Swap implements heap.Interface.
func (f fullest) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].place, f[j].place = i, j
}

// Push implements heap.Interface.
func (f *fullest) Push(m any) {
	m.(*Mirror).place = len(*f)
	*f = append(*f, m.(*Mirror))
}

// Pop implements heap.Interface.
func (f *fullest) Pop() any {
	last := len(*f) - 1
	m := (*f)[last]
	(*f)[last], *f = nil, (*f)[:last]
	return m
}

// roomLocked makes room for a batch of a mirror. It drops the batches of the mirrors that
// have most of them. It drops those of the mirror itself if that is not enough. It takes
// time in proportion to the batches that it drops, not to the mirrors: a stalled disk must
// not slow the copy.
func (d *Directory) roomLocked(m *Mirror, size int64) {
	for d.queued+size > d.opts.Buffer {
		largest := m
		if len(d.fullest) > 0 && d.fullest[0].queued > m.queued {
			largest = d.fullest[0]
		}
		d.dropLocked(largest, nil)
		if largest == m {
			return
		}
	}
}

// dropLocked drops the queued batches of a mirror. It needs a complete state afterwards.
func (d *Directory) dropLocked(m *Mirror, err error) {
	if len(m.waiting) > 0 {
		heap.Remove(&d.fullest, m.place)
	}
	for _, e := range m.waiting {
		d.queue.Remove(e)
	}
	d.queued -= m.queued
	m.waiting, m.queued, m.accept, m.linked = nil, 0, false, false
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
