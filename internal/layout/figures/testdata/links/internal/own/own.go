// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package own cannot be imported by others.
package own
