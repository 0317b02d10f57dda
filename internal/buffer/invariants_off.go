//go:build !invariants

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package buffer

// invariants enables checks: with -tags invariants recycled buffers are overwritten, so
// that reading one fails.
const invariants = false
