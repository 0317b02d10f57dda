// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package laststate has what a member stores beside the files of its cluster: a [Note] that proves which
// cluster they belong to while the cluster does not answer after a restart. A [File] writes and removes it.
// [Disproves] and [IsFinal] say which errors end the use of that state.
//
// # What blocks
//
// The methods of a file wait for the disk.
//
// # Bounds and ownership
//
// The mu of a file guards the content that it has written. Successive members of one name share a file.
package laststate
