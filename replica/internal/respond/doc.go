// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package respond writes responses: it negotiates the media type, compresses, writes
// statuses, and notices clients that do not read. Every document of the replica is written
// through it, whether it is made from objects or not.
//
// # Guarantees
//
// If a response cannot be written completely, the connection is broken, so that the client does not
// take a part for the complete response.
//
// # What blocks
//
// A write waits for its client, until [Tracker.Cut] finds that the client makes no progress.
//
// # Bounds and ownership
//
// A [Body] holds its first 128 KB until it is clear whether to compress, and 64 KB
// afterwards.
package respond
