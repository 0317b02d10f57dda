//go:build invariants

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

func init() { invariants = true }
