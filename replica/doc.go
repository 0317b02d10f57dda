// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package replica answers the gets, lists and watches of the Kubernetes API from the copy that
// a fleet keeps. kubectl, client-go and controller-runtime read from it unmodified. Below
// /clusters/<name> is the API of one cluster, with the versions of its API server. Below
// /fleet is the API of all of them, with versions of its own.
//
// A [Server] is an [http.Handler] that a program can embed. It allows
// every request that [Options.Authorize] and [Options.Admit] do not refuse. Authorize also
// decides which clusters the caller of a request sees below /fleet.
//
// # Guarantees
//
// Below /clusters, a list is one state that the API server had. Below /fleet, a list has one such
// state for each cluster; while a cluster is listed again, its objects can be a mix of the states
// before and after that list. A watch from the version of a list continues from there without a
// gap. Headers say how old the copy may be. If the fleet has files, the parameters at and changes
// read the past, of one cluster or of all.
//
// Unless [Options.PassThrough] is set, nothing can be written, and only two kinds of requests go
// to a cluster: for OpenAPI documents, and reads that the client wants to be consistent.
//
// # What blocks
//
// A read waits for the hooks, and for its client, which must make progress within
// [Options.WriteTimeout]. It can also wait:
//
//   - for another reader that is encoding the same objects;
//   - for its turn to read files of the past;
//   - for OpenAPI documents of a cluster, up to 10 s;
//   - with [Options.PassThrough], for the user's own writes, up to 1 s;
//   - below /clusters, for a resourceVersion that the copy has not reached: a get or a list up to
//     3 s, like kube-apiserver, and a watch until its own end.
//
// A request that is passed on waits up to [Options.OriginTimeout] for the headers of the cluster's
// response.
//
// # Bounds and ownership
//
// A response is written while it is made, a block of neighbouring objects at a time. While
// it waits for its client it holds 64 KB of a block. The bytes of blocks and of events are
// kept for the next reader, within [Options.Blocks] and [Options.Frames]. A watch takes a
// goroutine and its stack; a watch over a WebSocket takes a second goroutine and 4 KB. The events
// that a watch has not sent yet are in the log that all readers share. A client below /clusters that
// is too slow for the log receives a 410. Below /fleet the client receives the differences; only a
// client that has resumed at a version, and has not caught up yet, receives a 410.
//
// With access control the server remembers which clusters a caller saw in a list, for 10,000 pairs
// of a caller and a list. It keeps discovery documents for 64 sets of clusters.
package replica
