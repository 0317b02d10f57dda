// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build race

package kubetest_test

// loadedPods is fewer than without the race detector, which makes encoding ten
// times slower.
const loadedPods = 3_000
