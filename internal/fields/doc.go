// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package fields selects objects by their fields, as an API server does for a
// fieldSelector.
//
// # Guarantees
//
// A kind has the field labels of kube-apiserver 1.37: the package accepts and refuses the
// same labels, with the same messages, and selects the same objects. Labels differ
// between the versions of a kind. Custom resources have the selectableFields of their
// definition.
//
// # Bounds and ownership
//
// A [Set] is immutable and safe for concurrent use. It never modifies an object and keeps
// none.
package fields
