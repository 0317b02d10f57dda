// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package serving

import (
	"math"
	"syscall"
)

// maxFiles returns how many file descriptors the process may have. Go raises the soft limit
// to the hard limit when a program starts.
func maxFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // Cur is signed on some systems
}
