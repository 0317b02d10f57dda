// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package store keeps objects by key, in key order, with typed indexes, and provides
// immutable snapshots of objects and indexes.
//
// # Guarantees
//
// A [Snapshot] never changes. Its objects and indexes belong to the same moment, which is
// the end of a batch: the deltas of one [Store.Apply] are visible entirely or not at all.
// Ranges are in key order, so a namespace is the prefix "namespace/", and a range can be
// resumed after the last key it yielded.
//
// An index has exactly the values that its function returned when the object was stored.
// The function is called once per new state, never again for the old one, so an object
// that is modified after it was stored cannot leave stale entries. If the function fails
// or panics, its object is left out of that index and counted, and nothing else is
// affected ([Index.Failing]).
//
// # What blocks
//
// Readers never wait: taking a snapshot is one atomic load, and no lock is held while it
// is read. A get looks the key up in a hash table that writers change at the same time, and
// then checks in the snapshot that the object belongs to it. Writers wait for each other.
//
// Adding an index to a store that has objects computes the values of all of them in the
// caller's goroutine, and does not hold up other writers. They wait only at its end, while the
// objects that were written meanwhile are indexed.
//
// # Bounds and ownership
//
// Objects are shared: neither writers nor readers may change them. Besides the bytes of the
// key, the store takes some 105 bytes per object of a pointer type: for the key and the slot in
// a tree, the record and the key in tables by slot, and the slot in a hash table. An index of
// strings takes some 120 more per object: for the value in a table by slot, and the value, the
// key and the slot in a tree.
//
// A column, which [Snapshot.Having] makes for an attribute that is asked for, costs 4.5
// bytes per object. A store has at most 8 columns.
//
// An update copies a page of the table and shares a directory with its batch: 300 to
// 800 bytes of garbage, depending on the size of the batch. Only additions, deletions
// and changes of indexed values modify a tree. A snapshot that a reader keeps costs nothing while
// its objects are current: it costs the nodes and objects that have been replaced since it was
// taken, because it keeps them from being freed.
package store
