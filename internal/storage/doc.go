// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package storage is the files of package disk, for the packages that store mirrors and read their
// past. It keeps states that the server had of each mirror, and a log of the changes since. The
// past is the changes, with [Cluster.History], and the state at a moment, with [Cluster.At].
//
// A [Directory] has a folder for each cluster. A [Cluster] has one log for all its mirrors,
// in segments, and snapshots of each large mirror. The complete state of a small mirror
// is in the log. Dictionaries of packed objects are named by their hash and shared by all
// clusters.
//
// Package format has the bytes of each file, package keyindex the index by key in the log, and
// package reader reads the files of one cluster. This package writes them behind the mirrors, and
// removes what is old.
//
// # Guarantees
//
// The guarantees of package disk are about mirrors in detail:
//
// The unit is a batch of one mirror: changes, and the version after them. After a crash at
// any moment, [Mirror.Load] returns a state that was true at the version that it returns,
// or a [*Rejection]. Batches of different mirrors are independent. A relist counts from
// its last batch on: a process that ends inside it goes back to the state before.
//
// A batch that was not completely written at the end of the log is ignored. Other damage rejects
// mirrors, which are then listed again: a damaged payload rejects one mirror, and a damaged header
// every mirror that needs the segment. No record is ever left out of the middle. A mirror is
// loaded only with an equal [Identity].
//
// Where changes of a mirror were not written or are removed, [Cluster.History] yields a
// [*GapError] with the bounds of the gap in time. Times never go back.
//
// [State.Records] has no gaps: it leads from the state at [State.After] to the loaded one,
// and each change has the state of its object before. Damage in files that only the records
// need costs records, and not the state. [Cluster.At] returns the last state
// up to a moment, or an error if it cannot be shown that it is the last. [Cluster.ObjectAt] and
// [Cluster.ObjectHistory] return the same of one object. They do not notice damage in files, or
// parts of files, that they do not read.
//
// # What blocks
//
// [Mirror.Append] never waits for a file: its lock is not held during file operations.
// [Directory.Run] writes and syncs. It has another goroutine that writes snapshots, one at a
// time, from an immutable state.
//
// Batches that cannot be written are dropped, [Directory.Stats] and [Mirror.Status] report the
// error, and the complete state is written later.
//
// [Directory.Cluster] and [Mirror.Load] read files in the goroutine of the caller. So do
// [Cluster.History] and [Cluster.At], while others write.
//
// # Bounds and ownership
//
// If too many batches wait, the mirror with the most of them is dropped. Append takes the same
// time whether there is room or not. A mirror holds its newest state, which its owner has anyway.
//
// The writer holds some 25 bytes for each object that has changed in the newest segment with frames of
// its mirror. A read of the log keeps the frames of one segment that later differences may refer to.
//
// A read of one object holds the largest frame that it reads, a few hundred KiB of an index, and
// the frames of one segment that are not indexed yet. It reads some 6 bytes for each change of the
// cluster in the period.
//
// A mirror gets a new complete state when its batches since the last one are larger than
// that, and at least 1 MiB. The log and the complete states of the window are kept until all
// mirrors have a newer complete state from before the window.
//
// To load a mirror, at most 256 MiB of its cluster's log are read, or as much as the
// cluster's snapshots if that is more. A stored mirror that is not opened is forgotten when
// the log has grown by that much.
//
// Objects and slices that are passed to Append are shared and must not be modified. The
// caller owns loaded objects. A dictionary is freed when none of them uses it.
package storage
