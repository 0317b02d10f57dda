// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Ratio returns theirs divided by ours: how many times smaller ours is.
func Ratio(ours, theirs time.Duration) string {
	return fmt.Sprintf("%.2f", float64(theirs)/float64(max(ours, 1)))
}

// Thousands inserts commas into a whole number and returns other text unchanged.
func Thousands(digits string) string {
	if strings.ContainsAny(digits, ".e-") {
		return digits
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Megabytes returns a number of bytes as whole megabytes.
func Megabytes(bytes float64) string { return strconv.FormatFloat(bytes/1e6, 'f', 0, 64) }

// Milliseconds returns a duration in milliseconds, with three significant digits.
func Milliseconds(d time.Duration) string { return Significant(d.Seconds() * 1e3) }

// Significant returns a number with three significant digits, or as a whole number
// if it is 1000 or larger.
func Significant(x float64) string {
	if x >= 1000 {
		return Thousands(strconv.FormatFloat(x, 'f', 0, 64))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}
