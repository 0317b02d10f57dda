// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !(darwin || freebsd || linux)

package main

import (
	"os"
	"path/filepath"
)

// lock does nothing, because there is no kernel lock here. Two builders at once do the
// work twice, which costs only time: files are renamed into place.
func lock(path string) (unlock func(), err error) {
	return func() {}, os.MkdirAll(filepath.Dir(path), 0o755)
}
