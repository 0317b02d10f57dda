//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"errors"
	"os"
)

// Lock returns an error: two processes could write to the same files.
func Lock(*os.File) error { return errors.ErrUnsupported }
