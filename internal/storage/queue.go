// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"container/heap"
	"iter"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/storage/format"
)

// all yields the changes.
func (q *queuedBatch) all() iter.Seq[format.QueuedChange] {
	return func(yield func(format.QueuedChange) bool) {
		for i := range q.changes {
			c := format.QueuedChange{Change: &q.changes[i]}
			if i < len(q.managers) {
				c.Manager = q.managers[i]
			}
			if i < len(q.packed) {
				c.Packed = q.packed[i]
			}
			if c.Type != delta.Sync && !yield(c) {
				return
			}
		}
	}
}

// queueLocked adds a batch.
func (l *ledger) queueLocked(q queuedBatch) {
	m := q.mirror
	m.entry.waiting = append(m.entry.waiting, l.queue.PushBack(&q))
	l.queued += q.size
	if m.entry.queued += q.size; len(m.entry.waiting) == 1 {
		heap.Push(&l.fullest, m)
	} else {
		heap.Fix(&l.fullest, m.entry.place)
	}
	notify(l.wake)
	if l.queued >= l.limits.chunk {
		notify(l.full)
	}
}

// takeLocked empties the queue. The batches count as queued until they are written.
func (l *ledger) takeLocked() (all []*queuedBatch) {
	all = make([]*queuedBatch, 0, l.queue.Len())
	for e := l.queue.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*queuedBatch))
	}
	for _, m := range l.fullest {
		m.entry.waiting, m.entry.queued = nil, 0
	}
	l.queue.Init()
	l.fullest = nil
	return all
}

// fullest is a heap of the mirrors that have batches in the queue. The first one has most.
type fullest []*Mirror

// Len implements heap.Interface.
func (f fullest) Len() int { return len(f) }

// Less implements heap.Interface.
func (f fullest) Less(i, j int) bool { return f[i].entry.queued > f[j].entry.queued }

// Swap implements heap.Interface.
func (f fullest) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].entry.place, f[j].entry.place = i, j
}

// Push implements heap.Interface.
func (f *fullest) Push(m any) {
	m.(*Mirror).entry.place = len(*f)
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
func (l *ledger) roomLocked(m *Mirror, size int64) {
	for l.queued+size > l.buffer {
		largest := m
		if len(l.fullest) > 0 && l.fullest[0].entry.queued > m.entry.queued {
			largest = l.fullest[0]
		}
		l.dropLocked(largest, nil)
		if largest == m {
			return
		}
	}
}

// dropLocked drops the queued batches of a mirror. It needs a complete state afterwards.
func (l *ledger) dropLocked(m *Mirror, err error) {
	if len(m.entry.waiting) > 0 {
		heap.Remove(&l.fullest, m.entry.place)
	}
	for _, e := range m.entry.waiting {
		l.queue.Remove(e)
	}
	l.queued -= m.entry.queued
	m.entry.waiting = nil
	m.entry.queued = 0
	m.entry.accept = false
	m.entry.linked = false
	m.entry.epoch++
	m.entry.status.Dropped++
	if err != nil {
		m.entry.status.Err = err
	}
	l.dropped++
	l.wantLocked(m)
}

// wantLocked requests a complete state of a mirror.
func (l *ledger) wantLocked(m *Mirror) {
	if !m.entry.closed {
		l.wanting[m] = struct{}{}
		notify(l.wake)
	}
}
