// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import "strconv"

// newer reports whether version comes after last. If version is not a number, any
// different one does.
func newer(version, last string) bool {
	n := number(version)
	return n > number(last) || n == 0 && version != "" && version != last
}

// number returns a version as a number, 0 if it is not one.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
