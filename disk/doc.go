// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package disk keeps mirrored objects in files: for every mirror states that the server
// had, and a log of the changes since. A restarted process continues from there instead of
// listing. The same files resume watches across the restart, and are the history: the
// changes with [Cluster.History], and the state at a moment with [Cluster.At].
//
// A [Directory] has a folder for each cluster. A [Cluster] has one log for all its mirrors,
// in segments, and snapshots of each large mirror. The complete state of a small mirror
// is in the log. Dictionaries of packed objects are named by their hash and shared by all
// clusters.
//
// # Guarantees
//
// The unit is a batch of one mirror: changes, and the version after them. After a crash at
// any moment, [Mirror.Load] returns a state that was true at the version that it returns,
// or a [*Rejection]. Batches of different mirrors are independent. A relist counts from
// its last batch on: a process that ends inside it goes back to the state before.
//
// Every byte that is read is covered by a checksum. A batch that was not completely written
// at the end of the log is ignored. Any other damage rejects the mirrors that it may
// concern: if the header of the record is intact, one mirror, and otherwise every mirror of the
// cluster that needs the segment. No record is ever left out of the middle. A mirror is loaded only with an
// equal [Identity]. Files of a newer format are refused and left as they are.
//
// Where changes of a mirror were not written or are removed, [Cluster.History] yields a
// [*GapError] with the bounds of the gap in time. Times never go back: if the clock of the machine is set
// back, they stand still until it has caught up. A clock that jumps ahead by more than a minute
// is ignored for five minutes, in which the logs use the time that has passed, so that a
// wrong clock does not remove the past.
//
// [State.Records] has no gaps: it leads from the state at [State.After] to the loaded one,
// and each change has the state of its object before. Damage in files that only the records
// need makes them fewer, and does not cost the state. [Cluster.At] returns the last state
// up to a moment, or an error if it cannot be shown that it is the last. [Cluster.ObjectAt] and
// [Cluster.ObjectHistory] return the same of one object. They do not notice damage in files, or
// parts of files, that they do not read.
//
// A mirror of Secrets is encrypted: its objects, their labels and its dictionaries with
// AES-256-GCM. Its keys, that is the names of objects, its versions and its field managers
// are not. Without [Options.Keys] it is not stored. Files have mode 0600 and folders 0700.
//
// # What blocks
//
// [Mirror.Append] never waits for a file: its lock is not held during file operations.
// [Directory.Run] writes 10 ms later, or earlier if 256 KiB are waiting, and syncs once a
// second. So a killed process loses 10 ms of changes, and a power failure about a second.
// Snapshots are written by another goroutine, one at a time, from an immutable state.
//
// A full, slow, failing or read-only disk does not reach the caller. Batches that cannot be
// written are dropped, [Directory.Stats] and [Mirror.Status] report the error, and the
// complete state is written later. Attempts are at least a second and at most a minute
// apart. [Open] returns an error, because the caller may want to stop then.
//
// [Directory.Cluster] and [Mirror.Load] read files in the goroutine of the caller. So do
// [Cluster.History] and [Cluster.At], while others write.
//
// # Bounds and ownership
//
// Batches that wait take at most [Options.Buffer]. If there are more, the mirror with the
// most of them is dropped. Append takes the same time whether there is room or not. A mirror
// holds its newest state, which its owner has anyway. An open cluster has one open
// file, and 32 KiB of the index of its log.
//
// A read of one object holds the largest frame that it reads, a few hundred KiB of an index, and
// the frames of one segment that are not indexed yet. It reads some 6 bytes for each change of the
// cluster in the period.
//
// A mirror gets a new complete state when its batches since the last one are larger than
// that, and at least 1 MiB. So files take about twice the state, and a change is written
// about twice. The changes of [Options.Window] come on top, also about twice: the log, and
// the complete states that were written meanwhile. They are kept until all mirrors have a
// newer complete state from before the window. [Options.WindowBytes] limits them for all
// clusters together. A cluster that is not opened within an hour of the start has left: all
// its files are removed when the newest is older than the window, or when there are too
// many files and it is the oldest.
//
// To load a mirror, at most 256 MiB of its cluster's log are read, or as much as the
// cluster's snapshots if that is more. A stored mirror that is not opened is forgotten when
// the log has grown by that much.
//
// Objects and slices that are passed to Append are shared and must not be modified. The
// caller owns loaded objects. A dictionary is freed when none of them uses it.
package disk
