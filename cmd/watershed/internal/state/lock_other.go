// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package state

import "os"

// lockFile returns true and does nothing: the system has no flock.
func lockFile(*os.File) (bool, error) { return true, nil }

// checkPrivate returns nil: modes do not show which users can read a file.
func checkPrivate(string) error { return nil }
