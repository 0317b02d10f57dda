// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package replica serves the read side of the Kubernetes API from the copy that a fleet
// keeps. kubectl, client-go and controller-runtime read from it unmodified. Below
// /clusters/<name> is the API of one cluster, with the versions of its API server. Below
// /fleet is the API of all of them, with versions of its own.
//
// A [Server] is an [http.Handler] that a program can embed. It allows
// every request that [Options.Authorize] and [Options.Admit] do not refuse. Authorize also
// decides which clusters the caller of a request sees below /fleet.
//
// # Guarantees
//
// A list is one state that the server had, and a watch from its version continues from there
// without a gap. Reads are answered from the copy, and headers contain its age. Unless
// [Options.PassThrough] is set, nothing can be written, and of a cluster's API only OpenAPI documents
// and reads that the client wants to be consistent are requested from the cluster. If the fleet has
// files, the parameters at and changes read the past, of one cluster or of all.
//
// # What blocks
//
// A read blocks only on the hooks and on its own client, as long as that makes progress within
// [Options.WriteTimeout]. A read of a resourceVersion that the copy has not reached waits up
// to 3 s for it, like kube-apiserver. A request that is passed on waits up to
// [Options.OriginTimeout] for the headers of the cluster's response.
//
// # Bounds and ownership
//
// A response is written while it is made, a block of neighbouring objects at a time. While
// it waits for its client it holds 64 KB of a block. The bytes of blocks and of events are
// kept for the next reader, within [Options.Blocks] and [Options.Frames]. A watch takes a
// goroutine and its stack, and as a WebSocket another one and 4 KB. What it has not sent yet
// is in the log that all readers share, and a client that is too slow for the log receives a
// 410.
// With access control the server remembers up to 10,000 lists of callers, and discovery
// documents for 64 sets of clusters.
package replica
