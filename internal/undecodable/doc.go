// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package undecodable keeps account of object states that cannot be decoded into the
// type that a reader wants: which ones were reported, and which ones a reader of
// changes has skipped.
//
// # Guarantees
//
// A reader that skips such states still receives a consistent sequence for every
// object: Added with the first state that can be decoded, Updated from the last state
// that it received, and Deleted if and only if it received a state before.
//
// # What blocks
//
// Nothing but short critical sections.
//
// # Bounds and ownership
//
// Both types cost some 50 bytes for each undecodable object. [Skipped] also keeps the
// last decodable state of each alive; [Log] keeps no object alive.
package undecodable
