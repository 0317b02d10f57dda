// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package undecodable keeps account of the states of objects that cannot be decoded into the type that
// a reader wants. [Log] remembers which states were reported. [Skipped] remembers which states a reader
// of changes has skipped. [Loop] contains a Skipped, and serves a reader that decides itself which
// changes to decode.
//
// # Guarantees
//
// A reader that skips such states still receives a consistent sequence for every object. Added comes
// with the first state that can be decoded. Updated comes with the last state that the reader received
// as the old state. Deleted comes if and only if the reader has received a state before.
//
// # What blocks
//
// Nothing but short critical sections.
//
// # Bounds and ownership
//
// [Log] and [Skipped] each need some 50 bytes for each undecodable object. A [Loop] needs the memory of
// its Skipped. For each undecodable object, [Skipped] also keeps the last state that the reader
// received in memory. [Log] keeps no object in memory.
package undecodable
