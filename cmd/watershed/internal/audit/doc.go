// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package audit records the requests to a replica as events of the group audit.k8s.io/v1,
// one JSON object per line, at the level Metadata: the caller, the request, the decision and
// the code of the response, without contents.
//
// # Guarantees
//
// Credentials are not recorded: headers are not part of an event except User-Agent, and
// values of query parameters whose names suggest a credential are replaced.
//
// A line in the file is whole. A line that the disk accepted only in part is removed again.
//
// # What blocks
//
// [Log.Audit] encodes an event and copies it into the queue. It does not wait for the disk:
// if the queue is full, the event is dropped and counted. That costs about 4 us of CPU, 9
// allocations and 700 bytes for each event (BenchmarkAudit). [Log.Run] waits for the disk.
//
// # Bounds and ownership
//
// The queue has at most 8 MiB, and as much again is being written. A line has about 1 KB, and
// at most about 300 KB if a client makes every value as long as it can. Each file has at most
// the configured size, and the number of files is limited.
package audit
