// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package engine keeps the copy of one resource, as bytes. It connects the stages of the flow:
// a reflector fills a queue, and a consumer moves what is queued into a store and into a log of
// changes, which readers follow. It packs objects that are at rest, and writes changes to files.
//
// It does not know the Go types of objects: package watershed decodes objects, and calls
// handlers and index functions.
//
// An [Engine] outlives its runs. Each run has a [Life] with a store and a log of its own, which
// can be freed when the run has ended. A [Part], such as a handler or an index, belongs to
// the engine and joins every life.
//
// # Guarantees
//
// The store and the log receive the same changes, in the same order. Readers of a life
// start at a state that the server had, and receive every change after it, or the differences
// to a later state. When [Engine.Run] returns, everything that it started has ended.
//
// # What blocks
//
// Reads of a snapshot never block. A batch of changes waits for the tap, if there is one, and
// for no other reader. The reflector waits while the queue is full.
//
// # Bounds and ownership
//
// Besides the objects, a life keeps at most [Options.Window] bytes of earlier states in its log,
// 16 MiB of states that wait to be stored, and as many that are being stored. A life costs
// its caller's goroutine and, while something is queued, one more. Engines that have the same
// [Packing] share its dictionaries, and only one of them packs densely at a time.
package engine
