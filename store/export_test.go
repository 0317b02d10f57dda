// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

// Invariants means that the store checks itself after every batch.
const Invariants = invariants
