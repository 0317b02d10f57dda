// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package delta is the queue between a source of changes and the store: the DeltaFIFO of
// the informer pattern, for any type that has a key.
//
// # Guarantees
//
// Every change put into a [FIFO] is returned at most once. [FIFO.Pop] returns it together
// with all other changes of its object since the object was last taken out; [FIFO.Drain]
// returns all changes in the order of their arrival. Changes of one object are never
// reordered. Two deletions of one object with nothing between them become one deletion.
//
// A complete list ([FIFO.Replace], [FIFO.Relist]) also queues the deletions that it
// implies: an object that is queued or known and not listed is gone. Such a deletion
// carries the last known state and is marked ([Delta.Missed]).
//
// [Known] gives the queue access to the objects that the consumer already has. Without it
// the queue cannot distinguish an object that has left the queue from one that never
// existed, and drops the deletion of either.
//
// # What blocks
//
// A full queue blocks the producer, an empty one the consumer. These waits end with their
// context or with [FIFO.Close]. A consumer also waits until another consumer has finished; that
// wait ends only with its context. Producers take turns, and so do
// consumers. Neither waits for the other's work: objects can be queued while earlier ones
// are being processed.
//
// # Bounds and ownership
//
// At most [Options.Capacity] deltas and about [Options.Bytes] of objects wait, and at most
// as many again are being processed.
// The queue starts no goroutine and has no clock. Objects are shared, not copied: the
// producer must not change an object after queueing it. A slice that is passed to a
// process function is valid until the function returns.
package delta
