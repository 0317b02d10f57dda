// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"fmt"
	"slices"

	"github.com/watershed-project/watershed/store"
)

// waiters has the waiting readers by interest. The log's mu guards it. Readers with the
// same interest share a topic, some 150 bytes, for as long as any of them waits.
type waiters[T any] struct {
	everything *topic
	dimensions []*dimension[T]
	// open is [Options.Open], and opened is how many dimensions it has returned.
	open   func(name string) (Dimension[T], bool)
	opened int
	count  int
	// lap is closed after lapLeft more changes, for all readers that wait with a
	// [Cursor.Lap]. Readers that began to wait later are woken early. It is nil if there
	// are none.
	lap     chan struct{}
	lapLeft uint64
}

// maxOpened limits the number of dimensions that readers add to a log.
const maxOpened = 64

// dimensionLocked returns the dimension of an interest, and opens it if necessary. nil
// stands for everything.
func (w *waiters[T]) dimensionLocked(i Interest) (*dimension[T], error) {
	if i == (Interest{}) {
		return nil, nil
	}
	for _, d := range w.dimensions {
		if d.name == i.dimension {
			return d, nil
		}
	}
	if w.open != nil && w.opened < maxOpened {
		if d, ok := w.open(i.dimension); ok {
			d.Name = i.dimension
			w.opened++
			w.dimensions = append(w.dimensions, newDimension(d))
			return w.dimensions[len(w.dimensions)-1], nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoDimension, i.dimension)
}

// joinLocked registers a waiting reader.
func (w *waiters[T]) joinLocked(d *dimension[T], value Value, m mark) *topic {
	t := w.everything
	if d != nil {
		t = d.topics[value]
	}
	if t == nil {
		t = &topic{mark: m, woken: make(chan struct{})}
		if d != nil {
			d.filter.add(m, len(d.topics), d.marks)
			if d.topics == nil {
				d.topics = make(map[Value]*topic)
			}
			d.topics[value] = t
		} else {
			w.everything = t
		}
	}
	t.waiting++
	w.count++
	return t
}

// lapLocked returns a channel that is closed after at most so many changes.
func (w *waiters[T]) lapLocked(changes uint64) <-chan struct{} {
	if w.lap == nil {
		w.lap, w.lapLeft = make(chan struct{}), changes
	}
	return w.lap
}

// leaveLocked unregisters a reader whose topic has not fired.
func (w *waiters[T]) leaveLocked(d *dimension[T], value Value, t *topic) {
	w.count--
	if t.waiting--; t.waiting > 0 {
		return
	}
	if d != nil {
		delete(d.topics, value)
	} else {
		w.everything = nil
	}
}

func (w *waiters[T]) fireLocked(t *topic, revision uint64) {
	w.count -= t.waiting
	t.fired = revision
	close(t.woken)
}

// wakeLocked wakes the readers that the changes can concern. The changes are the last
// ones of the chunks.
func (w *waiters[T]) wakeLocked(changes []store.Change[T], chunks []*chunk[T]) {
	if w.count == 0 {
		return
	}
	if w.lap != nil {
		if w.lapLeft -= min(w.lapLeft, uint64(len(changes))); w.lapLeft == 0 {
			close(w.lap)
			w.lap = nil
		}
	}
	if t := w.everything; t != nil {
		w.everything = nil
		w.fireLocked(t, changes[0].Revision)
	}
	for _, d := range w.dimensions {
		if d.value != nil {
			w.wakeInLocked(d, changes[0].Revision, chunks)
			continue
		}
		for i := 0; i < len(changes) && len(d.topics) > 0; i++ {
			c := &changes[i]
			if d.part == nil {
				was, is := d.states(c)
				w.lookLocked(d, is, c.Revision)
				w.lookLocked(d, was, c.Revision)
			} else if part, ok := d.part(c.Key); ok && d.filter.has(markOf(part)) {
				w.fireIfLocked(d, ValueOf(part), c.Revision)
			}
		}
	}
}

// wakeAllLocked wakes all readers.
func (w *waiters[T]) wakeAllLocked(revision uint64) {
	if t := w.everything; t != nil {
		w.everything = nil
		w.fireLocked(t, revision)
	}
	for _, d := range w.dimensions {
		w.fireAllLocked(d, revision)
	}
}

func (w *waiters[T]) fireAllLocked(d *dimension[T], revision uint64) {
	for _, t := range d.topics {
		w.fireLocked(t, revision)
	}
	clear(d.topics)
}

// wakeInLocked wakes the readers that wait in a dimension with one value for each object,
// for the changes from a revision on.
func (w *waiters[T]) wakeInLocked(d *dimension[T], from uint64, chunks []*chunk[T]) {
	for _, c := range chunks {
		if len(d.topics) == 0 {
			return
		}
		changes, column := c.seen(), c.column(d)
		i, _ := slices.BinarySearchFunc(changes, from, byRevision[T])
		for ; i < len(changes) && len(d.topics) > 0; i++ {
			was, is := column.values(&changes[i], i)
			if was == AnyValue || is == AnyValue {
				w.fireAllLocked(d, changes[i].Revision)
				return
			}
			if d.filter.has(mark(is)) {
				w.fireIfLocked(d, is, changes[i].Revision)
			}
			if was != is && d.filter.has(mark(was)) {
				w.fireIfLocked(d, was, changes[i].Revision)
			}
		}
	}
}

// lookLocked wakes the readers that wait on one of the values.
func (w *waiters[T]) lookLocked(d *dimension[T], values []Value, revision uint64) {
	f := d.filter // a copy stays in registers
	for _, v := range values {
		if f.has(mark(v)) {
			w.fireIfLocked(d, v, revision)
		}
	}
}

func (w *waiters[T]) fireIfLocked(d *dimension[T], v Value, revision uint64) {
	if t := d.topics[v]; t != nil {
		delete(d.topics, v)
		w.fireLocked(t, revision)
	}
}
