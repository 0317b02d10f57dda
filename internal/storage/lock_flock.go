//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"os"
	"syscall"
)

// lock takes the lock of a file, which ends with the process.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
