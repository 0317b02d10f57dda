// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import "os"

// lockFile does nothing: the system has no flock.
func lockFile(*os.File) error { return nil }
