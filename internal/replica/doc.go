// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package replica serves the read side of the Kubernetes API from the copy that a
// fleet keeps: kubectl, client-go and controller-runtime read from it unmodified.
// Below /clusters/<name> is the API of one cluster, with the versions of its server;
// below /fleet is that of all of them, with versions of its own.
//
// # Guarantees
//
// A list is one state that the server had, and a watch from its version goes on
// from there without a gap. What is read is what the copy has, and how old that may
// be is said in headers; reads go to a cluster only if the request asks for that.
// Nothing can be written.
//
// # What blocks
//
// A read waits for the client that reads it, for as long as that makes progress within
// [Options.Patience], and for no other client; a read of a version that the copy has not reached waits for it, up to
// 3 s, as the API server does. One that is passed on waits for the cluster to begin its
// answer, up to [Options.Origin].
//
// # Bounds and ownership
//
// An answer is written while it is made, a block of neighbouring objects at a time,
// however long it is; while it waits for its client it holds 64 KB of a block. The bytes of blocks and of events are kept for the
// next reader, within [Options.Blocks] and [Options.Frames]. A watch takes a
// goroutine and its stack; what it has not sent yet is in the log that all readers
// share, and a client that is too slow for the log is told so.
package replica
