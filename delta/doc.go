// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package delta is the queue between a source of changes and the store: the
// DeltaFIFO of the informer pattern, for any type that has a key.
//
// # Guarantees
//
// Every change put into a [FIFO] comes out at most once, together with all that
// happened to its object since the object was last taken out ([FIFO.Pop]), or in
// the order in which everything arrived ([FIFO.Drain]). Changes of one object
// never change places. Two deletions of one object with nothing between them are
// one deletion.
//
// A complete list ([FIFO.Replace], [FIFO.Relist]) also queues the deletions that
// the list implies: whatever is queued or known and not listed is gone. Such a
// deletion carries the last state anybody knew and says so ([Delta.Missed]).
//
// [Known] tells the queue what the consumer already has. Without it a deletion
// of an object that has left the queue cannot be told from one that never
// existed, and is dropped.
//
// # What blocks
//
// A full queue makes the producer wait, an empty one the consumer. Every wait
// ends with its context or with [FIFO.Close], but for a consumer that waits for
// another one to finish: that ends with its context alone. Producers take turns, and so do
// consumers; neither waits for the other's work: objects can be queued while
// earlier ones are being processed.
//
// # Bounds and ownership
//
// At most [Options.Capacity] deltas wait, and at most as many again are being
// processed. The queue starts no goroutine and has no clock. Objects are shared,
// not copied: whoever puts one in must not change it afterwards. Slices passed
// to a process function are lent for the length of the call.
package delta
