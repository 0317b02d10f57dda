// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"fmt"
	"strconv"
)

// firstVersion is the start of versions: all have ten digits.
const firstVersion = 1_000_000_000

// formatVersion returns the resourceVersion of a version.
func formatVersion(v uint32) string { return strconv.FormatUint(firstVersion+uint64(v), 10) }

// parseVersion parses a resourceVersion; "" is 0.
func parseVersion(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion: Invalid value: %q: %w", s, err)
	}
	return int64(v), nil
}
