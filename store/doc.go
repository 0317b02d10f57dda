// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package store keeps objects by key, in key order, with typed indexes, and
// gives readers immutable snapshots of all of it.
//
// # Guarantees
//
// A [Snapshot] never changes. Objects and indexes in it belong to the same
// moment, and that moment is the end of a batch: a batch of deltas that
// [Store.Apply] was given is visible entirely or not at all. Ranges run in key
// order, so a namespace is the prefix "namespace/", and a range can be resumed
// after the last key it gave.
//
// An index has exactly what its function said of the object when it was stored.
// The function is called once per new state, never again for the old one: an
// object that was changed behind the store's back cannot leave stale entries.
// A function that fails or panics leaves its object out of that index, is
// counted, and breaks nothing else ([Index.Failing]).
//
// # What blocks
//
// Readers never wait: taking a snapshot is one atomic load, and no lock is held
// while it is read. Writers take turns. Adding an index to a filled store
// reads all objects once while other writers wait.
//
// # Bounds and ownership
//
// Objects are shared and must not be changed, neither by who puts them in nor by
// who gets them out. Per object (of a pointer type) the store keeps some 110
// bytes beside the key's own: key and slot in a tree, the record in a table, and
// a map entry by which the writer finds the slot. Per index it keeps some 120
// more, for a string: the value by slot, and value, key and slot in a tree.
//
// An update copies a page of the table and shares a directory with its batch:
// 300 to 1,100 bytes of garbage, depending on the size of the batch. Only objects
// that come, go, or change their indexed values touch a tree. A snapshot that is
// kept holds the nodes and objects that were current then; it costs nothing
// until they are replaced.
package store
