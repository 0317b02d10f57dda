// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package serving

import "math"

// maxFiles returns how many file descriptors the process may have.
func maxFiles() int { return math.MaxInt32 }
