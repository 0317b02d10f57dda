// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package peer connects the replicas of a group. Each replica gives the notes of writes to all others,
// and tells them the state of its copies. The replicas know each other from the list of the group, which
// has the address and the key of each.
//
// # Guarantees
//
// A request is answered only for a replica that the list has, and that has shown that it has the key in
// the list. Nothing is sent to an address before the server there has shown the same. A replica can give
// notes, report its state, answer questions about versions, and nothing else: other paths are 404, and no
// request is made for a user.
//
// [Exchange.Send] returns true only after all replicas in the list have accepted the note. While
// [Exchange.Complete] is true, every replica in the list has shown within the last 3 s that it has this
// one in its own list, and so sends it its notes.
//
// # What blocks
//
// [Exchange.Send] waits up to 50 ms, and [Exchange.Versions] up to 30 s. No other method waits.
//
// # Bounds and ownership
//
// A group has 16 replicas at most: others count as unreachable. Up to 64 notes are on their way to a
// replica, and up to 64 requests of each are answered at once; further ones are refused with 429.
// [Exchange.Run] owns all goroutines, and waits for them. A report has 4 MiB at most, and an
// answer about versions 64 MiB.
package peer
