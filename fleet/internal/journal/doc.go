// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package journal writes the log lines about the clusters of a fleet. A [Journal] examines the status of
// a [Member] soon after [Journal.Disturb] was called with the member, every second while the member is
// not live or something in it fails, and otherwise once a minute. The journal compares the status with
// what it has logged about the member before, and logs only the difference: that a cluster can be read,
// that it cannot be reached, which of its resources fail, and when these resources recover.
//
// # Guarantees
//
//   - A failure is logged once, after it has lasted for some seconds. The end of a failure is logged
//     only if the failure was logged.
//   - A cluster that cannot be reached has one line, whatever the number of its resources.
//   - While more than 100 clusters sync for the first time, the journal logs their total progress
//     instead of a line for each cluster that has synced.
//
// # What blocks
//
// [Journal.Run] runs until its context ends. [Journal.Disturb] does not wait.
//
// # Bounds and ownership
//
// The lock of a journal guards the set of members that it will examine soon. A goroutine takes this lock
// after all its other locks. The lock is never held during an examination. The journal remembers what it
// has logged about a member until the member leaves.
package journal
