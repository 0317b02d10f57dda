//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"os"
	"syscall"
)

// Lock takes the lock of a file, which ends with the process.
func Lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
