// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

// ListMeta is the metadata of a list.
type ListMeta struct {
	ResourceVersion string
	// Continue is the token for the next page, "" if there is none.
	Continue string
	// RemainingItemCount is the number of objects in the next pages, 0 if the server does
	// not send it.
	RemainingItemCount int64
}
