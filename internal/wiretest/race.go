// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build race

package wiretest

// Race is set with the race detector, which changes the number of allocations and
// makes everything ten times slower.
const Race = true
