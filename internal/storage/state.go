// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
)

// What is stored.
type (
	// Identity is everything that the content of a mirror depends on: the cluster, as
	// [ClusterIdentity] returns it, the resource and its kind, the encoding, the selection of
	// objects, and the transforms, as [TransformIdentity] returns them. Stored objects are used
	// only for a mirror with an equal identity.
	Identity = format.Identity
	// Restored is a restore of the server from a backup: the highest version before it, and its
	// time. A version up to that one may be from before the restore, when it had another meaning.
	Restored = format.Restored
	// State is a stored state of a mirror: one that the server had. It has the objects in the
	// order of their keys, the version and the time, and after [Mirror.Load] the last records.
	State = reader.State
	// Record is a stored batch: the changes that led from one state of the server to another,
	// with the version and the time of the latter.
	Record = reader.Record
	// Change is a stored change of one object.
	Change = reader.Change
	// Entry is a record of one mirror in the history of a cluster.
	Entry = reader.Entry
	// Moment is a point in the past of a mirror: a version if that is not 0, or else a time.
	Moment = reader.Moment
)

// What cannot be read.
type (
	// Rejection is the error for a mirror whose stored state cannot be used, with its reason and
	// its cause. The caller lists the resource instead.
	Rejection = reader.Rejection
	// TooOldError is returned by [Cluster.At] for a moment before the oldest stored state. It has
	// the version and the time of that state.
	TooOldError = reader.TooOldError
	// GapError is yielded by [Cluster.History] where changes of a mirror may be missing: they
	// could not be written, the mirror did not run, or the files were removed. It has the
	// versions and the times between which they are missing.
	GapError = reader.GapError
)
