// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"iter"
	"slices"
	"strings"
)

// Having yields the objects whose attribute (see [Options.Attribute]) has one of some
// values, in key order, if they are few: at most one in eight of the objects. If they are
// not, or that is not known yet, it returns false, and the caller walks the objects. Only
// keys that begin with prefix and come after a given key are considered.
//
// The second request for an attribute in a store of at least 500 objects makes a column
// of it, for later snapshots. That takes one call of [Options.Attribute] per object. With
// a column, Having looks at 4 bytes per object of the snapshot, or at the keys that have
// the prefix if they are fewer than one in 64.
func (s *Snapshot[T]) Having(
	name string, values []string, prefix, after string,
) (objects iter.Seq2[string, T], few bool) {
	if s.Len() < minColumn || len(values) == 0 {
		return nil, false
	}
	c, frozen := s.column(name)
	if c == nil {
		return nil, false
	}
	f := finding[T]{snapshot: s, column: frozen, prefix: prefix, after: after, most: s.Len() / fewShare}
	for _, value := range values {
		f.wanted = append(f.wanted, hashOf(value))
	}
	if !f.find() {
		return nil, false
	}
	return func(yield func(string, T) bool) {
		for _, slot := range f.slots {
			obj := s.records.at(slot).object
			// Values that differ can have the same hash.
			value, ok := c.attribute(obj, name)
			if ok && slices.Contains(values, value) && !yield(*s.names.at(slot), obj) {
				return
			}
		}
	}, true
}

// column returns the column of an attribute in the snapshot, nil if it has none.
func (s *Snapshot[T]) column(name string) (*column[T], *frozenColumn) {
	if c, frozen := s.ownColumn(name); c != nil {
		return c, frozen
	}
	// A column that was made later belongs to the current snapshot. While nothing changes,
	// readers may keep this one, which has the same objects in the same slots.
	if now := s.columns.current(); now != nil && now != s && now.keys == s.keys && now.revision == s.revision {
		if c, frozen := now.ownColumn(name); c != nil {
			return c, frozen
		}
	}
	s.columns.want(name)
	return nil, nil
}

func (s *Snapshot[T]) ownColumn(name string) (*column[T], *frozenColumn) {
	for _, f := range s.indexes {
		if c, ok := f.index.(*column[T]); ok && c.name == name {
			c.asked.Store(s.columns.asks.Add(1))
			return c, f.entries.(*frozenColumn)
		}
	}
	return nil, nil
}

// finding is a search for the objects whose hash is one of those wanted.
type finding[T any] struct {
	snapshot      *Snapshot[T]
	column        *frozenColumn
	wanted        []uint32
	prefix, after string
	most          int
	// slots are those found, of at most as many objects as most says.
	slots []uint32
}

// find finds the slots, in the order of their keys, and reports whether they are few.
func (f *finding[T]) find() bool {
	if f.prefix != "" {
		// In a small namespace, a walk of its keys is shorter than one of all hashes.
		if complete, few := f.walk(f.snapshot.Len() / 64); complete || !few {
			return few
		}
		f.slots = f.slots[:0]
	}
	if !f.scan() {
		return false
	}
	slices.SortFunc(f.slots, func(a, b uint32) int {
		return strings.Compare(*f.snapshot.names.at(a), *f.snapshot.names.at(b))
	})
	return true
}

// walk walks the keys with the prefix, up to a limit.
func (f *finding[T]) walk(limit int) (complete, few bool) {
	complete, few = true, true
	f.snapshot.keys.Ascend(max(f.prefix, f.after), func(key string, slot uint32) bool {
		if !strings.HasPrefix(key, f.prefix) {
			return false
		}
		if limit--; limit < 0 {
			complete = false
			return false
		}
		if key > f.after && slices.Contains(f.wanted, f.column.hashes.at(slot >> stripBits)[slot&inStrip]) {
			f.slots = append(f.slots, slot)
			few = len(f.slots) <= f.most
		}
		return few
	})
	return complete, few
}

// scan looks at the hashes of all slots, and reports whether few were wanted.
func (f *finding[T]) scan() bool {
	for at := range f.column.strips {
		for i, hash := range f.column.hashes.at(at) {
			if hash == 0 || hash != f.wanted[0] && !slices.Contains(f.wanted[1:], hash) {
				continue
			}
			slot := at<<stripBits + uint32(i)
			if key := *f.snapshot.names.at(slot); key > f.after && strings.HasPrefix(key, f.prefix) {
				f.slots = append(f.slots, slot)
			}
		}
		if len(f.slots) > f.most {
			return false
		}
	}
	return true
}
