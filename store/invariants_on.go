//go:build invariants

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

// invariants enables checks: with -tags invariants every index is recomputed from the
// objects after every batch, and a difference panics.
const invariants = true
