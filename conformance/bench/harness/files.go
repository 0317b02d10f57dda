// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/watershed-project/watershed/disk"
)

// Files are files that are being written.
type Files struct {
	*disk.Directory
	stop  context.CancelFunc
	ended chan error
}

// OpenFiles opens a folder and writes what is stored there. The caller calls End.
func OpenFiles(folder string, opts *disk.Options) (*Files, error) {
	d, err := disk.Open(folder, opts)
	if err != nil {
		return nil, err
	}
	f := &Files{Directory: d, ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	go func() { f.ended <- d.Run(ctx) }()
	return f, nil
}

// End writes what is left.
func (f *Files) End() error {
	f.stop()
	return <-f.ended
}

// WithFolder calls f while the variable names a folder: a temporary one, unless it is set.
func WithFolder(variable string, f func() error) error {
	if os.Getenv(variable) != "" {
		return f()
	}
	folder, err := os.MkdirTemp("", "watershed-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := os.Setenv(variable, folder); err != nil {
		return err
	}
	return errors.Join(f(), os.Unsetenv(variable))
}

// WalkFiles calls f for every file in a folder.
func WalkFiles(folder string, f func(path string, size float64) error) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return f(path, float64(info.Size()))
	})
}

// FolderSize returns the size of the files in a folder.
func FolderSize(folder string) (sum float64, err error) {
	err = WalkFiles(folder, func(_ string, size float64) error {
		sum += size
		return nil
	})
	return sum, err
}
