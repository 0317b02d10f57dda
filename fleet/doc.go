// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package fleet mirrors many clusters.
package fleet
