// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"
)

// column has a hash of one attribute of every object, by slot, so that the objects that
// have a value are found without looking at the others. Columns are made for the
// attributes that readers ask for, and dropped when nothing asks any more.
//
// A column costs 4.5 bytes per object, and the writer one call of [Options.Attribute] for
// each new state. It is an [indexer] without a tree. Most new states have the attribute
// unchanged, and then it copies nothing.
type column[T any] struct {
	name      string
	attribute func(obj T, name string) (string, bool)
	// asked is the number of the last request for the column.
	asked atomic.Uint64

	// The store's mu guards the fields below.
	// hashes has strips, by the higher bits of the slot. frozen is the copy that the
	// current snapshot has, nil if hashes has changed since.
	hashes table[strip]
	strips uint32
	frozen *frozenColumn
	// writes counts the states written since asked was last seen to have changed.
	writes int
	seen   uint64
}

// frozenColumn is a column at the time of a snapshot.
type frozenColumn struct {
	hashes rows[strip]
	// strips is the number of strips. Slots after them have no object.
	strips uint32
}

// strip is the hashes of neighbouring slots, 0 if the object lacks the attribute or there
// is none.
type strip [1 << stripBits]uint32

const (
	stripBits = 5
	inStrip   = 1<<stripBits - 1

	// maxColumns is the greatest number of columns of a store. A further one replaces the
	// one that was asked for least recently.
	maxColumns = 8
	// minColumn is the number of objects from which on a store has columns.
	minColumn = 500
	// fewShare is the share of the objects, one in so many, up to which [Snapshot.Having]
	// calls a number of objects few.
	fewShare = 8
)

// hashOf returns the hash of a value. It is not 0.
func hashOf(value string) uint32 { return uint32(maphash.String(seed, value)) | 1 }

func (c *column[T]) putLocked(slot uint32, _ string, obj T) {
	c.writes++
	hash := uint32(0)
	if value, ok := c.attribute(obj, c.name); ok {
		hash = hashOf(value)
	}
	c.setLocked(slot, hash)
}

func (c *column[T]) removeLocked(slot uint32, _ string) { c.setLocked(slot, 0) }

func (c *column[T]) setLocked(slot, hash uint32) {
	at := slot >> stripBits
	for ; c.strips <= at; c.strips++ {
		c.hashes.set(c.strips, strip{})
		c.frozen = nil
	}
	now := *c.hashes.at(at)
	if now[slot&inStrip] == hash {
		return
	}
	now[slot&inStrip] = hash
	c.hashes.set(at, now)
	c.frozen = nil
}

func (c *column[T]) emptyLocked() {
	c.hashes.rows, c.strips, c.frozen = rows[strip]{}, 0, nil
}

func (c *column[T]) freezeLocked() any {
	if c.frozen == nil {
		c.frozen = &frozenColumn{c.hashes.freeze(), c.strips}
	}
	return c.frozen
}

func (*column[T]) size(_ any, objects int) int { return objects * 9 / 2 }

// idleLocked reports whether more states were written than two walks would have visited,
// and no reader has asked for the column meanwhile.
func (c *column[T]) idleLocked(objects int) bool {
	if c.writes <= 2*max(objects, minColumn) {
		return false
	}
	asked := c.asked.Load()
	idle := asked == c.seen
	c.writes, c.seen = 0, asked
	return idle
}

func (c *column[T]) checkLocked(keys *keys, objects *rows[record[T]]) {
	keys.Scan(func(key string, slot uint32) bool {
		want := uint32(0)
		if value, ok := c.attribute(objects.at(slot).object, c.name); ok {
			want = hashOf(value)
		}
		if got := c.hashes.at(slot >> stripBits)[slot&inStrip]; got != want {
			panic(fmt.Sprintf("store: the column of %s has %x for %s, want %x", c.name, got, key, want))
		}
		return true
	})
}
