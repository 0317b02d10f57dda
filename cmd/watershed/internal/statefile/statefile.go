// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package statefile writes the files of the state directory in one step, so that a reader in
// another process sees the old content or the new one, never a part. Other users cannot
// read the files.
package statefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file, whether or not it exists.
func Replace(path string, content []byte) error {
	name, err := writeBeside(path, content)
	if err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		_ = os.Remove(name)
		return err
	}
	return nil
}

// Create writes a file, unless another process has created it first. In that case it
// returns nil, and the caller reads the content of the other process.
func Create(path string, content []byte) error {
	name, err := writeBeside(path, content)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(name) }()
	if err := os.Link(name, path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// writeBeside writes a new file with a unique name in the folder of path.
func writeBeside(path string, content []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
