// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package reflector keeps a queue in step with a source: it lists and watches, and
// recovers from every failure of either.
//
// # Guarantees
//
// Changes enter the queue in the order in which the source reports them. After any
// failure the reflector continues from the last version it saw, or lists again. Either
// way the consumer of the queue ends up with the state of the source. An object that is missing
// from an incomplete list does not count as deleted. A list that is older than what was seen before is not accepted,
// unless the source itself has gone back, as etcd does when it is restored from a backup.
// The reflector detects that when it reconnects, counts and reports it
// ([Status.Restores]), and accepts the older state.
//
// The protocol sets one limit: if the source goes back, and advances beyond the last seen
// version before the reflector checks, the reflector cannot detect it by versions alone. When it
// continues a stored state, it also compares the newest objects of that state with the source,
// which finds most of these cases: see [Reflector.Continue].
//
// The reflector requests the state as a stream first ([WatchOptions.InitialEvents]), and
// as pages if the source does not support that, which it remembers. A resource that the
// source does not have is parked: the reflector asks at intervals ([Options.Park]) whether the
// source has it again. When all answers during [Options.Absence] were no, the known objects of the
// resource are deleted.
//
// [Reflector.Relist] makes the reflector read the whole state again, for a caller that has
// found the copy to differ from the source.
//
// An object that cannot be decoded is counted ([Status.Dropped]), and its last state stays. The
// event of a deletion deletes the object even if the object in it cannot be decoded. If its key
// cannot be read either, a list determines which object it was.
//
// # What blocks
//
// [Reflector.Run] blocks until its context ends, and every wait in it ends then too. A
// full queue blocks the reflector, and thereby the source. A silent stream is closed
// after [Options.Silence].
//
// # Bounds and ownership
//
// A reflector keeps only a version, a status and, during a list, the keys that
// [delta.Relist] remembers. Only the goroutine of Run calls the source.
package reflector
