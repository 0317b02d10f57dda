// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import "slices"

// putLocked indexes a new state of the object in the slot.
func (x *Index[T, K]) putLocked(slot uint32, key string, obj T) {
	for int(slot) >= len(x.terms) {
		x.terms = append(x.terms, term[K]{})
	}
	values, err := x.eval(key, obj)
	if err != nil {
		x.removeLocked(slot, key)
		x.terms[slot].state = failed
		x.failingLocked(1, err)
		return
	}
	t := &x.terms[slot]
	// This is by far the most common case: one value, unchanged.
	if t.state == one && len(values) == 1 && t.value == values[0] {
		return
	}
	if len(values) > 1 {
		values = slices.Clone(values)
		slices.Sort(values)
		values = slices.Compact(values)
		if slices.Equal(values, x.many[slot]) {
			return
		}
	}
	x.removeLocked(slot, key)
	if len(values) == 0 {
		return
	}
	x.frozen = nil
	for _, value := range values {
		x.entries.Set(entry[K]{value, key, slot})
	}
	if len(values) == 1 {
		*t = term[K]{state: one, value: values[0]}
		return
	}
	if x.many == nil {
		x.many = make(map[uint32][]K)
	}
	t.state, x.many[slot] = several, values
}

// removeLocked removes the entries of the object in the slot.
func (x *Index[T, K]) removeLocked(slot uint32, key string) {
	t := &x.terms[slot]
	switch t.state {
	case one:
		x.frozen = nil
		x.entries.Delete(entry[K]{value: t.value, key: key})
	case several:
		x.frozen = nil
		for _, value := range x.many[slot] {
			x.entries.Delete(entry[K]{value: value, key: key})
		}
		delete(x.many, slot)
	case failed:
		x.failingLocked(-1, nil)
	}
	*t = term[K]{}
}

// replayLocked indexes writes in their order.
func (x *Index[T, K]) replayLocked(writes []write[T]) {
	for i := range writes {
		if w := &writes[i]; w.removed {
			x.removeLocked(w.slot, w.key)
		} else {
			x.putLocked(w.slot, w.key, w.object)
		}
	}
}

// emptyLocked releases the memory of the terms.
func (x *Index[T, K]) emptyLocked() {
	x.terms, x.many = nil, nil
}

// failingLocked updates the result of [Index.Failing].
func (x *Index[T, K]) failingLocked(by int, err error) {
	var now failing
	if last := x.failing.Load(); last != nil {
		now = *last
	}
	now.objects += by
	if err != nil {
		now.last = err
	}
	x.failing.Store(&now)
}

// freezeLocked copies the entries, if they changed since the last time.
func (x *Index[T, K]) freezeLocked() any {
	if x.frozen == nil {
		x.frozen = x.entries.Copy()
	}
	return x.frozen
}
