// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"fmt"
	"slices"
)

// checkLocked panics if the published snapshot is not what the writer has, or
// an index is not what its function says of the objects.
func (s *Store[T]) checkLocked() {
	now := s.Snapshot()
	if now.Len() != s.objects.Len() || now.revision != s.revision {
		panic(fmt.Sprintf("store: snapshot has %d objects at revision %d, the writer %d at %d",
			now.Len(), now.revision, s.objects.Len(), s.revision))
	}
	last := ""
	s.objects.Scan(func(key string, r record[T]) bool {
		if got, ok := now.objects.Get(key); !ok || got.revision != r.revision || key <= last {
			panic(fmt.Sprintf("store: %s is not in the snapshot, or out of order", key))
		}
		last = key
		return true
	})
	for _, x := range s.indexes {
		x.checkLocked(s.objects)
	}
}

func (x *Index[T, K]) checkLocked(objects *objects[T]) {
	want, failed := 0, 0
	objects.Scan(func(key string, r record[T]) bool {
		values, err := x.eval(key, r.object)
		if err != nil {
			failed++
		}
		values = slices.Clone(values)
		slices.Sort(values)
		values = slices.Compact(values)
		for _, value := range values {
			if _, ok := x.entries.Get(entry[K]{value, key}); !ok {
				panic(fmt.Sprintf("store: index %s lacks %v of %s", x.name, value, key))
			}
		}
		want += len(values)
		return true
	})
	if x.entries.Len() != want || len(x.failed) != failed {
		panic(fmt.Sprintf("store: index %s has %d entries and %d failures, want %d and %d",
			x.name, x.entries.Len(), len(x.failed), want, failed))
	}
	known := len(x.one)
	for _, values := range x.many {
		known += len(values)
	}
	if known != want {
		panic(fmt.Sprintf("store: index %s remembers %d values, want %d", x.name, known, want))
	}
}
