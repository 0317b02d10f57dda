// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package fields selects objects by their fields, as an API server does for who
// gives a fieldSelector.
//
// # Guarantees
//
// A kind has the field labels that kube-apiserver 1.37 gives it: it accepts and
// refuses the same ones, in the same words, and selects the same objects. Labels
// differ between the versions of a kind. Custom resources have those of their
// definition's selectableFields.
//
// # What is shared
//
// A [Set] does not change after it was made and serves any number of goroutines.
// It never changes an object and keeps none.
package fields
