//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"os"
)

// lock returns an error: two processes could write to the same files.
func lock(*os.File) error { return errors.ErrUnsupported }
