// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package upstream reads one API server, for all resources of one cluster. A [Server] has the
// connection, the identity of the cluster, and the limits that all reads share. A [Source] lists and
// watches one resource for an informer, and a [Listing] reads one state in pages for a reader that
// does not keep it.
//
// Lists take turns: a list waits for a place among those of its server, and then for one among those
// of the fleet. When credentials change, [Server.Connect] and [Source.Use] move the reads to another
// connection, on which the watches continue from their versions.
//
// # Guarantees
//
//   - Nothing that another cluster has sent reaches an informer. The server at an address changes
//     only between two connections, so the first reader of a new connection asks the cluster for its
//     identity, see [Identification], before it passes anything on.
//   - An object whose fields the Go types of this program do not have is reported before it is kept.
//   - A server that asks for a pause gets no further list until the pause is over.
//
// # What blocks
//
// [Source.Wait] and [Server.TakeTurn] wait for a turn, and a first list for memory, until the context
// ends. Reads wait if a budget or a limit of the server requires it.
//
// # Bounds and ownership
//
// The mu of a source guards its connection and its open watch, the mu of an identification the
// identity. Neither is held during a request. The lock of an identification named requesting is held
// during the request for the identity, and while the fleet replaces a member. The rest of a source belongs to its
// reflector. What a server may make the program keep is bounded by package quota.
package upstream
