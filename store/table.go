// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import "slices"

// record is the table's entry for an object. The revision is that of its last change: if
// two snapshots have the same one, they have the same state of the object, whatever T is.
type record[T any] struct {
	object   T
	revision uint64
}

// table keeps rows by slot, a small number that an object has for as long as it is
// stored. It is a trie of fixed depth whose nodes are copied on the first write after a
// freeze. An update copies a page and, unless another update of the batch was near, a
// directory: for the record of a pointer some 400 bytes in batches of 100. The nodes of a
// B-tree would be 2,000 bytes and would have to be searched.
//
// There are 8 rows in a page, 16 pages in a directory, 16 directories in a volume and 16
// volumes on a shelf. The list of shelves, which is copied once per batch, has 31 entries
// for a million objects.
type table[R any] struct {
	rows[R]
	// epoch is the number of freezes. A node of the current epoch is not shared with a
	// snapshot, so the writer may change it. listEpoch is the epoch of the list of
	// shelves.
	epoch, listEpoch uint64
}

// rows is a read-only table. Its nodes are immutable.
type rows[R any] struct {
	shelves []*shelf[R]
}

const (
	// pageBits is the number of bits of a slot that select a row in its page, nodeBits
	// the number of bits that select a node in each larger one.
	pageBits, nodeBits = 3, 4

	inPage, inNode = 1<<pageBits - 1, 1<<nodeBits - 1
)

// node is a part of the table with its content, an array. epoch is the one in which the
// writer made it.
type node[C any] struct {
	epoch   uint64
	content C
}

type (
	page[R any]      = node[[1 << pageBits]R]
	directory[R any] = node[[1 << nodeBits]*page[R]]
	volume[R any]    = node[[1 << nodeBits]*directory[R]]
	shelf[R any]     = node[[1 << nodeBits]*volume[R]]
)

// own returns the node at a place, which the writer may change in this epoch. It puts a
// new node there if there is none, or a copy if snapshots may share the node.
func own[C any](at **node[C], epoch uint64) *node[C] {
	switch n := *at; {
	case n == nil:
		*at = &node[C]{epoch: epoch}
	case n.epoch != epoch:
		*at = &node[C]{epoch: epoch, content: n.content}
	}
	return *at
}

// directoryOf returns the directory of the slot, which must have been set.
func (r *rows[R]) directoryOf(slot uint32) *directory[R] {
	at := slot >> (pageBits + nodeBits)
	return r.shelves[at>>(2*nodeBits)].content[at>>nodeBits&inNode].content[at&inNode]
}

// pageOf returns the page of the slot, which must have been set.
func (r *rows[R]) pageOf(slot uint32) *page[R] {
	return r.directoryOf(slot).content[slot>>pageBits&inNode]
}

// at returns the row in the slot, which must have been set.
func (r *rows[R]) at(slot uint32) *R { return &r.pageOf(slot).content[slot&inPage] }

// set stores a row in a slot. New slots are used in ascending order.
func (t *table[R]) set(slot uint32, row R) {
	if t.listEpoch != t.epoch {
		t.shelves, t.listEpoch = slices.Clone(t.shelves), t.epoch
	}
	at := slot >> (pageBits + nodeBits)
	if int(at>>(2*nodeBits)) == len(t.shelves) {
		t.shelves = append(t.shelves, nil)
	}
	s := own(&t.shelves[at>>(2*nodeBits)], t.epoch)
	v := own(&s.content[at>>nodeBits&inNode], t.epoch)
	d := own(&v.content[at&inNode], t.epoch)
	p := own(&d.content[slot>>pageBits&inNode], t.epoch)
	p.content[slot&inPage] = row
}

// freeze returns the current rows. Later writes do not change them.
func (t *table[R]) freeze() rows[R] {
	t.epoch++
	return t.rows
}
