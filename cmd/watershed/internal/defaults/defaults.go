// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package defaults sets the defaults of options.
package defaults

import "time"

// Set sets a number or a duration to its default unless it is positive.
func Set[T int | int64 | time.Duration](value *T, fallback T) {
	if *value <= 0 {
		*value = fallback
	}
}
