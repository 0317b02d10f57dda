// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

// Fields are parts of an object's metadata that few programs read.
type Fields uint8

const (
	// ManagedFields is metadata.managedFields: who set which field, for
	// server-side apply. Often a third of an object.
	ManagedFields Fields = 1 << iota
	// LastApplied is the annotation in which kubectl apply keeps the whole
	// object once more.
	LastApplied
)
