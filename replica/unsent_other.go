// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package replica

// limitUnsent does nothing.
func limitUnsent(uintptr, int) error { return nil }
