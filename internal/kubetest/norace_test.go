// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !race

package kubetest_test

// loadedPods is how many pods the tests generate and load.
const loadedPods = 30_000
