// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package disk keeps the objects of informers and fleets in files. A restarted process continues from
// these files instead of listing. Clients can resume watches across the restart with them, and read
// the past of a fleet.
//
// A program opens a [Directory], runs it, and gives it to its informers in their option Disk. The
// informers of package compat and fleets have this option too:
//
//	files, err := disk.Open("/var/lib/operator", nil)
//	…
//	go files.Run(ctx)
//	pods, err := watershed.New(cluster, &watershed.Options[*corev1.Pod]{Disk: files})
//
// It closes the directory when Run has returned.
//
// # Guarantees
//
// After a crash at any moment, a resource continues from a state that its server had, or is listed
// again. A relist counts when it has ended: a process that ends during one goes back to the state before.
//
// Every byte that is read is covered by a checksum. A write that was interrupted by the end of a
// process is ignored. A resource whose files have any other damage is listed again.
// Stored objects are used only by an informer of the same cluster, resource,
// encoding, selection and transform. The cluster is identified by the UID of its namespace
// kube-system: without it nothing is stored, see [ErrUnidentified]. Files of a newer format are
// refused and left as they are.
//
// Secrets are encrypted: the objects, their labels and their dictionaries with AES-256-GCM. Their
// names, versions and field managers are not. Without [Options.Keys] Secrets are not stored. Files
// have mode 0600 and directories 0700.
//
// If the clock of the machine is set back, the times in the files stand still until it has
// caught up. A clock that jumps ahead by more than a minute is ignored for five minutes, so that a
// wrong clock does not remove the past.
//
// # What blocks
//
// Storing a change never waits for a file. [Directory.Run] writes 10 ms later, or earlier if
// 256 KiB are waiting, and syncs once a second. So a killed process loses 10 ms of changes, and a
// power failure about a second.
//
// A full, slow, failing or read-only disk does not reach informers and their readers. Changes that
// cannot be written are dropped, [Directory.Stats] reports the error, and the complete state is
// written later. Attempts are at least a second and at most a minute apart. [Open] returns an
// error, because the caller may want to stop then.
//
// An informer reads its files when it starts, in its own goroutine. Reads of the past read
// files in the goroutine of the caller.
//
// # Bounds and ownership
//
// Changes that wait to be written take at most [Options.Buffer]. A cluster has one open file, and 32 KiB of
// the index of its log.
//
// The files of a resource take about twice as much space as its objects, and a change is written about
// twice. The changes of [Options.Window] take space in addition. [Options.WindowBytes] limits them for
// all clusters together. A cluster that is not opened within an hour of the start has left: all its
// files are removed when the newest is older than the window, or when there are too many files
// and it is the oldest.
package disk
