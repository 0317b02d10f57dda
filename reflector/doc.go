// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package reflector keeps a queue in step with a source: it lists, watches, and
// knows what to do about everything that can go wrong with either.
//
// # Guarantees
//
// Changes enter the queue in the order in which the source reports them. After
// any failure the reflector goes on from the last version it saw, or lists again;
// either way the consumer of the queue ends with what the source has. A list that
// breaks off infers no deletion. A list that is older than what was seen before is
// not accepted, unless the source itself has gone back, as etcd does when it is
// restored from a backup: that is found out when the connection comes back, counted
// and reported ([Status.Restores]), and then the older state is the truth.
//
// One limit is the protocol's: if the source goes back and then on beyond the
// last version seen before anybody asks, nothing in it tells.
//
// The state is asked for as a stream first ([WatchOptions.InitialEvents]) and as
// pages if the source cannot, which is remembered. A resource that the source does
// not have is parked, and the source is asked now and then whether it has it again.
// The objects that are known of it are deleted when every answer for
// [Options.Absence] was that the source does not have it.
//
// An object that cannot be read is counted ([Status.Dropped]), and its last state
// stays. A deletion that cannot be read still deletes. If its key cannot be read
// either, a list finds out which object it was.
//
// # What blocks
//
// [Reflector.Run] blocks until its context ends, and every wait in it ends with
// that. A full queue makes it wait, and with it the source. A stream that has gone
// silent is closed after [Options.Silence].
//
// # Bounds and ownership
//
// Nothing is kept but a version, a status, and during a list what [delta.Relist]
// remembers. One goroutine, Run's, talks to the source.
package reflector
