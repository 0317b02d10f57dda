// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	// FileMode and FolderMode let only the user of the program read the objects.
	FileMode   = 0o600
	FolderMode = 0o700
	// Unfinished is the suffix of a file that is being written.
	Unfinished = ".tmp"
)

// Files performs the file operations of a directory.
type Files struct {
	// Fault is set by tests only. It is called before an operation on size bytes. If it
	// returns an error, a write writes the returned number of bytes, and fails. If it returns
	// 0 for a sync, which has size 1, nothing is synced.
	Fault func(operation, path string, size int) (int, error)
}

func (s *Files) before(operation, path string, size int) (int, error) {
	if s.Fault == nil {
		return size, nil
	}
	return s.Fault(operation, path, size)
}

// Create creates a file that must not exist.
func (s *Files) Create(path string) (*os.File, error) {
	if _, err := s.before("create", path, 0); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, FileMode)
}

// Write writes bytes at the end of a file.
func (s *Files) Write(f *os.File, b []byte) error {
	if n, err := s.before("write", f.Name(), len(b)); err != nil {
		_, _ = f.Write(b[:n])
		return err
	}
	_, err := f.Write(b)
	return err
}

// Sync makes what was written to a file durable.
func (s *Files) Sync(f *os.File) error {
	if n, err := s.before("sync", f.Name(), 1); err != nil || n == 0 {
		return err
	}
	return f.Sync()
}

// SyncFolder makes created, renamed and removed files of a folder durable.
func (s *Files) SyncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.Sync(f)
}

// Replace writes a file with content from a function: under another name, synced, renamed,
// and the folder synced. After a crash the file is there completely or not at all.
func (s *Files) Replace(path string, content func(write func([]byte) error) error) error {
	_ = os.Remove(path + Unfinished)
	f, err := s.Create(path + Unfinished)
	if err != nil {
		return err
	}
	defer os.Remove(path + Unfinished) //nolint:errcheck // it does not exist any more if all went well
	err = content(func(b []byte) error { return s.Write(f, b) })
	if err == nil {
		err = s.Sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if _, err := s.before("rename", path, 0); err != nil {
		return err
	}
	if err := os.Rename(path+Unfinished, path); err != nil {
		return err
	}
	return s.SyncFolder(filepath.Dir(path))
}

// ReadAt returns a part of a file. It does not allocate more than the file has.
func ReadAt(f *os.File, offset int64, size int) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if offset < 0 || size < 0 || offset > info.Size()-int64(size) {
		return nil, fmt.Errorf("%s: %d bytes at %d: %w", f.Name(), size, offset, io.ErrUnexpectedEOF)
	}
	b := make([]byte, size)
	_, err = f.ReadAt(b, offset)
	return b, err
}

// Open opens a file for reading.
func (s *Files) Open(path string) (*os.File, error) {
	if _, err := s.before("read", path, 0); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// ReadAll returns a whole file.
func (s *Files) ReadAll(path string) ([]byte, error) {
	if _, err := s.before("read", path, 0); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
