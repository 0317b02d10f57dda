// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package journal writes the log lines about the clusters of a fleet. A [Journal] examines the status of
// each [Member] when it was disturbed, every second while something fails in it, and otherwise once a
// minute. It compares the status with what it has logged before, and logs only the difference: that a
// cluster can be read, that it cannot be reached, which of its resources fail, and when they recover.
//
// # Guarantees
//
//   - A failure is logged once, when it has lasted for some seconds, and its end is logged if the
//     failure was.
//   - A cluster that cannot be reached has one line, whatever the number of its resources.
//   - While many clusters sync for the first time, only the progress of all is logged.
//
// # What blocks
//
// [Journal.Run] runs until its context ends. [Journal.Disturb] does not wait.
//
// # Bounds and ownership
//
// The mu of a journal guards the members that it will examine. It is taken after any other lock, and
// never held during an examination. What was logged about a member is kept until the member leaves.
package journal
