// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package reader reads the directory of one cluster: the newest state of a mirror for a restart, the
// state of a mirror at a moment of the past, and the changes since a time. It never writes.
//
// An [Index] has the positions of all frames and snapshots of each mirror in a part of the log. The
// chain of a mirror follows the mirror's frames in their order, and returns each batch or complete
// state when it has all of its frames. From the declarations and from damaged frames, the chain knows
// whether frames are missing. Three readers use an index and chains:
//
//   - [Folder.Load] begins at the oldest complete state, applies the batches after it, and keeps the
//     last batches as records. If a snapshot is damaged, Load needs all batches from an older complete
//     state to the state of the snapshot.
//   - [Folder.At] reads as few segments as are likely to be enough. Its first pass over the frames
//     finds the last state that is not after the moment. Its second pass stops at this state. If the
//     segments do not lead to the state, At tries again with twice as many segments.
//   - [Folder.History] reads one segment after the other, and yields what each batch changed. It
//     does not restore states.
//
// A read of one object does not read all frames. The index by key in the log lists the frames that may
// concern the object. Of the other frames it has only the heads that are needed to follow the log. If
// the index of a segment cannot be used, the whole segment is read, so the result is the same.
//
// # Guarantees
//
// A state is one that the server had, or the result is a [*Rejection] or a [*TooOldError]. Where
// changes are missing, a history yields an error, and continues. A read of one object does not
// notice damage in frames that it does not read.
//
// Files may be written and removed during a read. A history leaves out files that are removed while
// it runs. A read of a past state starts again if files were created or removed meanwhile.
//
// # What blocks
//
// All functions read files in the goroutine of the caller. There are no locks.
//
// # Bounds and ownership
//
// A segment is in memory while its frames are parsed, because later frames may refer to them, and a
// chunk of a snapshot while its objects are restored. The caller owns the objects that it has loaded.
// [Folder] is safe for concurrent use. An [Index] does not change after it was read.
package reader
