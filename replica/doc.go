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
// Below /clusters, a list is one state that the server had. Below /fleet, the part of a cluster
// whose resource is being listed again is between two such states. A watch from the version of a
// list continues from there without a gap. Reads are answered from the copy, and headers contain its age. Unless
// [Options.PassThrough] is set, nothing can be written, and of a cluster's API only OpenAPI documents
// and reads that the client wants to be consistent are requested from the cluster. If the fleet has
// files, the parameters at and changes read the past, of one cluster or of all.
//
// # What blocks
//
// A read waits for the hooks, and for its client, which must make progress within
// [Options.WriteTimeout]. It can also wait for another reader that is making the same bytes, for a
// turn to read files of the past, for OpenAPI documents of a cluster (up to 10 s), and with
// [Options.PassThrough] for the user's own writes (up to 1 s). Below /clusters, a get or a list of a
// resourceVersion that the copy has not reached waits up to 3 s for it, like kube-apiserver, and a
// watch waits until its own end. A request that is passed on waits up to
// [Options.OriginTimeout] for the headers of the cluster's response.
//
// # Bounds and ownership
//
// A response is written while it is made, a block of neighbouring objects at a time. While
// it waits for its client it holds 64 KB of a block. The bytes of blocks and of events are
// kept for the next reader, within [Options.Blocks] and [Options.Frames]. A watch takes a
// goroutine and its stack, and as a WebSocket another one and 4 KB. What it has not sent yet
// is in the log that all readers share, and a client below /clusters that is too slow for
// the log receives a 410. Below /fleet the client receives the differences; only a client that has
// resumed at a version, and has not caught up yet, receives a 410.
//
// With access control the server remembers up to 10,000 lists of callers, and discovery
// documents for 64 sets of clusters.
package replica
