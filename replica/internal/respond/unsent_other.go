// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package respond

// limitUnsent does nothing: only Linux has the option.
func limitUnsent(uintptr, int) error { return nil }
