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
// is read. A get is a look-up in a hash table that the writer changes meanwhile; what it
// finds is compared with the snapshot. Writers take turns. Adding an index to a filled store computes the values of
// all objects in the caller's goroutine; other writers wait only while the last writes
// since then are indexed.
//
// # Bounds and ownership
//
// Objects are shared: neither writers nor readers may change them. Per object (of a
// pointer type) the store keeps some 105 bytes in addition to the key's own: key and slot
// in a tree, record and key in tables by slot, and the slot in a hash table.
// Per index it keeps some 120 more, for a string: the value by slot, and value, key and
// slot in a tree.
//
// A column, which [Snapshot.Having] makes for an attribute that is asked for, costs 4.5
// bytes per object. A store has at most 8 columns.
//
// An update copies a page of the table and shares a directory with its batch: 300 to
// 800 bytes of garbage, depending on the size of the batch. Only additions, deletions
// and changes of indexed values modify a tree. A snapshot that is kept holds the nodes
// and objects that were current when it was taken. It costs nothing until they are
// replaced.
package store
