// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package fanout delivers one stream of changes to any number of readers, each at its own
// pace.
//
// # Guarantees
//
// A [Log] keeps the newest changes, in the order of their revisions. Every [Cursor]
// returns each change after its starting point that can concern its reader, once and in
// order, or returns [ErrExpired] if it has fallen out of the window. A cursor opened at a
// snapshot's revision continues that snapshot exactly.
//
// A waiting reader is woken only by a change that can concern it. Its [Interest] is
// everything, a namespace, one key, or a value in a dimension that the log has, such as a
// label, or opens, such as a field. While it waits it does not fall behind, however many
// other changes are published.
//
// # What blocks
//
// [Log.Publish] never waits for a reader. It costs the change itself, waking the readers
// that it can concern and, for each dimension with waiting readers, one filter lookup per
// value of the change, whatever the number of those readers. [Cursor.Next] waits for a
// change, its context or [Log.Close]. It takes no lock when there is something to read.
//
// # Bounds and ownership
//
// The window is bounded by count, bytes and age. A dimension with one value for each
// object adds 16 bytes to the changes that readers in it waited for or read. At most 64
// dimensions are opened. Readers share the window: a cursor is some 100 bytes and, while
// its reader processes a batch, holds that one batch of at most 64 changes. A cursor
// needs no closing. Slow or abandoned readers do not make anything grow. The log starts
// no goroutine; it checks the age of the window when a change is published and when
// [Log.Expire] is called.
package fanout
