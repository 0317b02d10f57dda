// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package fanout hands one stream of changes to any number of readers, each at
// its own pace.
//
// # Guarantees
//
// A [Log] keeps the newest changes, in the order of their revisions. Every
// [Cursor] sees each change after its starting point that can concern it, once
// and in order, or is told that it has fallen out of the window
// ([ErrExpired]). A cursor opened at a snapshot's revision continues that
// snapshot exactly.
//
// A reader that waits is woken only by a change that can concern it: its
// [Interest] is everything, a namespace, one key, or a value in a dimension that
// the log knows, such as a label, or opens, such as a field. While it waits it does
// not fall behind, however much else happens.
//
// # What blocks
//
// [Log.Publish] never waits for a reader. It costs the change itself plus, for
// each dimension somebody is waiting in, one look into a filter per value of the
// change, whatever the number of readers that wait; and waking those that are
// concerned. [Cursor.Next] waits for a change, its context or [Log.Close], and
// takes no lock when there is something to read.
//
// # Bounds and ownership
//
// The window is bounded by count, bytes and age. A dimension with one value for each
// object adds 16 bytes to the changes that readers in it waited for or read; at most
// 64 are opened. Readers share the window: a cursor is
// some 100 bytes and, while its reader is busy with a batch, holds that one
// batch of at most 64 changes. It needs no closing. Nothing grows because a
// reader is slow or gone. The log starts no goroutine; a window's age is looked
// at when something is published and when [Log.Expire] is called.
package fanout
