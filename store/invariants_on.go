//go:build invariants

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

// invariants: build with -tags invariants to recompute every index from the
// objects after every batch, and panic where they differ.
const invariants = true
