// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import "slices"

// putLocked indexes a new state of an object.
func (x *Index[T, K]) putLocked(key string, obj T) {
	values, err := x.eval(key, obj)
	if err != nil {
		x.removeLocked(key)
		x.failLocked(key, err)
		return
	}
	if len(x.failed) > 0 {
		x.mendLocked(key)
	}
	// By far the most common: one value, and the same as before.
	if old, ok := x.one[key]; ok && len(values) == 1 && old == values[0] {
		return
	}
	if len(values) > 1 {
		values = slices.Clone(values)
		slices.Sort(values)
		values = slices.Compact(values)
		if slices.Equal(values, x.many[key]) {
			return
		}
	}
	x.dropLocked(key)
	if len(values) == 0 {
		return
	}
	x.frozen = nil
	for _, value := range values {
		x.entries.Set(entry[K]{value, key})
	}
	if len(values) == 1 {
		x.one[key] = values[0]
		return
	}
	if x.many == nil {
		x.many = make(map[string][]K)
	}
	x.many[key] = values
}

// removeLocked forgets an object.
func (x *Index[T, K]) removeLocked(key string) {
	if len(x.failed) > 0 {
		x.mendLocked(key)
	}
	x.dropLocked(key)
}

// dropLocked removes the object's entries.
func (x *Index[T, K]) dropLocked(key string) {
	if value, ok := x.one[key]; ok {
		x.frozen = nil
		x.entries.Delete(entry[K]{value, key})
		delete(x.one, key)
		return
	}
	if values, ok := x.many[key]; ok {
		x.frozen = nil
		for _, value := range values {
			x.entries.Delete(entry[K]{value, key})
		}
		delete(x.many, key)
	}
}

// failLocked notes that the function failed on an object.
func (x *Index[T, K]) failLocked(key string, err error) {
	if x.failed == nil {
		x.failed = make(map[string]struct{})
	}
	x.failed[key] = struct{}{}
	x.failing.Store(&failing{objects: len(x.failed), last: err})
}

// mendLocked notes that an object is gone or indexed again.
func (x *Index[T, K]) mendLocked(key string) {
	if _, ok := x.failed[key]; !ok {
		return
	}
	delete(x.failed, key)
	x.failing.Store(&failing{objects: len(x.failed), last: x.failing.Load().last})
}

// freezeLocked copies the entries, if they changed since the last time.
func (x *Index[T, K]) freezeLocked() any {
	if x.frozen == nil {
		x.frozen = x.entries.Copy()
	}
	return x.frozen
}
