// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package reader reads the folder of one cluster: the newest state of a mirror for a restart, its
// state at a moment of the past, and the changes since a time. It never writes.
//
// An [Index] has the places of all frames and snapshots of each mirror in a part of the log. The
// chain of a mirror follows its frames in their order, and returns batches and complete states once
// they are complete. It knows whether frames are missing, from the declarations and from damage.
// Three readers are based on it:
//
//   - [Folder.Load] begins at the oldest complete state, applies the batches after it, and keeps the
//     last of them as records. If the newest snapshot is damaged, the batches must lead to it.
//   - [Folder.At] reads as few segments as are likely to be enough. The first pass over their frames
//     finds the last state that is not after the moment, and the second one stops there. If a file
//     is missing or the state is not found, it reads twice as many segments.
//   - [Folder.History] reads one segment after the other, and yields what each batch changed. It
//     does not know the states.
//
// A read of one object does not read all frames: the index by key in the log names those that may
// concern the object, and has the heads of the others. A segment whose index cannot be used is read
// completely, so the result is the same.
//
// # Guarantees
//
// A state is one that the server had, or the result is a [*Rejection] or a [*TooOldError]. Where
// changes are missing, a history yields an error, and continues. A read of one object does not
// notice damage in what it does not read.
//
// Files may be written and removed meanwhile. What is removed while a history is read is left out.
// A read of a state begins anew.
//
// # What blocks
//
// Everything reads files in the goroutine of the caller. There are no locks.
//
// # Bounds and ownership
//
// A segment is in memory while its frames are parsed, and a chunk of a snapshot while its objects
// are made. The caller owns loaded objects. [Folder] is safe for concurrent use, and an [Index] is
// not changed after it was read.
package reader
