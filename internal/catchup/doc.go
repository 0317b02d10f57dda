// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package catchup follows a sequence of states by the log of the changes between
// them, for one reader at a time. Informers and fleets share it.
//
// # Guarantees
//
// A [Follower] begins at a state and returns the changes after it, in the order of the
// log. When the log no longer has the changes after the reader's position, the
// follower returns the differences between what the reader has seen and the newest
// state, and continues there. The reader therefore always ends up with the newest
// state, and receives no change twice.
//
// Differences are ordered by key, except that objects which did not differ between the
// two states, but which the reader saw change in between, come last.
//
// # What blocks
//
// [Follower.Next] waits for a change, its context or the end of the log. Nothing else
// waits, and no lock is held.
//
// # Bounds and ownership
//
// A follower is 64 bytes and a cursor. It holds a state, the base, and the changes that
// the reader has seen since. Both keep old objects from being freed, so the base is
// replaced by newer states as the reader moves on. The [Source] decides when that is
// worth its cost.
package catchup
