// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"fmt"
	"slices"
)

// checkLocked panics if the published snapshot differs from the writer's state, or an
// index from the values that its function returns.
func (s *Store[T]) checkLocked() {
	now := s.Snapshot()
	if now.Len() != s.keys.Len() || now.Len() != len(s.slots) || now.revision != s.revision {
		panic(fmt.Sprintf("store: snapshot has %d objects at revision %d, the writer %d and %d at %d",
			now.Len(), now.revision, s.keys.Len(), len(s.slots), s.revision))
	}
	if int(s.used) != len(s.slots)+len(s.free) {
		panic(fmt.Sprintf("store: %d slots are used, %d by objects and %d free", s.used, len(s.slots), len(s.free)))
	}
	last, taken := "", make(map[uint32]bool)
	s.keys.Scan(func(key string, slot uint32) bool {
		if got, ok := now.keys.Get(key); !ok || got != slot || s.slots[key] != slot || taken[slot] || key <= last {
			panic(fmt.Sprintf("store: %s has slot %d here and %d in the snapshot, or is out of order", key, slot, got))
		}
		if now.records.at(slot).revision != s.table.at(slot).revision {
			panic(fmt.Sprintf("store: %s has another state in the snapshot", key))
		}
		last, taken[slot] = key, true
		return true
	})
	for _, x := range s.indexes {
		x.checkLocked(s)
	}
}

func (x *Index[T, K]) checkLocked(s *Store[T]) {
	want, bad, known := 0, 0, 0
	s.keys.Scan(func(key string, slot uint32) bool {
		values, err := x.eval(key, s.table.at(slot).object)
		if err != nil {
			bad++
		}
		values = slices.Clone(values)
		slices.Sort(values)
		values = slices.Compact(values)
		for _, value := range values {
			if e, ok := x.entries.Get(entry[K]{value: value, key: key}); !ok || e.slot != slot {
				panic(fmt.Sprintf("store: index %s lacks %v of %s", x.name, value, key))
			}
		}
		want += len(values)
		switch x.terms[slot].state {
		case one:
			known++
		case several:
			known += len(x.many[slot])
		}
		return true
	})
	if failing, _ := x.Failing(); x.entries.Len() != want || known != want || failing != bad {
		panic(fmt.Sprintf("store: index %s has %d entries, remembers %d and counts %d failures, want %d and %d",
			x.name, x.entries.Len(), known, failing, want, bad))
	}
}
