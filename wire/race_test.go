// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build race

package wire_test

// raceEnabled says that allocations are not what they are otherwise, and that
// everything takes ten times as long.
const raceEnabled = true
