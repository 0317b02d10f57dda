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

// table keeps records by slot, a small number that an object has for as long as it is
// stored. It is a trie of fixed depth whose nodes are copied on the first write after a
// freeze. An update copies a page and, unless another update of the batch was near, a
// directory: for a pointer some 400 bytes in batches of 100. The nodes of a B-tree would
// be 2,000 bytes and would have to be searched.
//
// There are 8 records in a page, 16 pages in a directory and 64 directories in a volume.
// The list of volumes, which is copied once per batch, has 122 entries for a million
// objects.
type table[T any] struct {
	records[T]
	// epoch is the number of freezes. A node of the current epoch is not shared with a
	// snapshot, so the writer may change it. listEpoch is the epoch of the list of
	// volumes.
	epoch, listEpoch uint64
}

// records is a read-only table. Its nodes are immutable.
type records[T any] struct {
	volumes []*volume[T]
}

const (
	pageBits      = 3
	directoryBits = 4
	volumeBits    = 6
)

// node is a part of the table with its content, an array. epoch is the one in which the
// writer made it.
type node[C any] struct {
	epoch   uint64
	content C
}

type (
	page[T any]      = node[[1 << pageBits]record[T]]
	directory[T any] = node[[1 << directoryBits]*page[T]]
	volume[T any]    = node[[1 << volumeBits]*directory[T]]
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

// pageOf returns the page of the slot, which must have been set.
func (r *records[T]) pageOf(slot uint32) *page[T] {
	v := r.volumes[slot>>(pageBits+directoryBits+volumeBits)]
	d := v.content[slot>>(pageBits+directoryBits)&(1<<volumeBits-1)]
	return d.content[slot>>pageBits&(1<<directoryBits-1)]
}

// at returns the record in the slot, which must have been set.
func (r *records[T]) at(slot uint32) *record[T] {
	return &r.pageOf(slot).content[slot&(1<<pageBits-1)]
}

// set stores a record in a slot. New slots are used in ascending order.
func (t *table[T]) set(slot uint32, r record[T]) {
	if t.listEpoch != t.epoch {
		t.volumes, t.listEpoch = slices.Clone(t.volumes), t.epoch
	}
	at := int(slot >> (pageBits + directoryBits + volumeBits))
	if at == len(t.volumes) {
		t.volumes = append(t.volumes, nil)
	}
	v := own(&t.volumes[at], t.epoch)
	d := own(&v.content[slot>>(pageBits+directoryBits)&(1<<volumeBits-1)], t.epoch)
	p := own(&d.content[slot>>pageBits&(1<<directoryBits-1)], t.epoch)
	p.content[slot&(1<<pageBits-1)] = r
}

// freeze returns the current records. Later writes do not change them.
func (t *table[T]) freeze() records[T] {
	t.epoch++
	return t.records
}
