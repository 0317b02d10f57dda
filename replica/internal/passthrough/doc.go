// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package passthrough sends requests on to the API server of the cluster that they address, and passes
// the responses back. [Forwarder] uses the credentials of the caller: for writes, logs, terminals and
// whatever else no copy can answer. [OriginReads] uses the credentials of the fleet: for clients that
// want to read from the cluster itself.
//
// # Guarantees
//
// A user reads its own writes: [Forwarder.Wait] waits until the copy has what the responses to the
// user's writes tell, or reports that the cluster must answer. A response passes only known headers
// and media types, and a redirect only within the cluster. A response that was cut off is aborted: a
// part never looks like the whole.
//
// # What blocks
//
// [Forwarder.Serve] and [OriginReads.Serve] wait for the cluster, up to [Limits.Timeout] for the
// headers and for each part of a body that does not stay open, and for the client. [Forwarder.Wait]
// waits up to a second.
//
// # Bounds and ownership
//
// [Limits] bounds the requests of one cluster: a request above the limit gets a 429 and does not wait.
// A request holds up to 256 KB of its body. The response to a write is read before it is passed back,
// up to 16 MB, within a budget for all clusters. Writes that the copy does not have yet take some 200
// bytes for each user and resource, for up to 10,000 of them.
package passthrough
