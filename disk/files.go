// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	fileMode   = 0o600
	folderMode = 0o700
	// unfinished is the suffix of a file that is being written.
	unfinished = ".tmp"
)

const segmentPrefix = "log-"

// segmentName returns the name of the file of a segment.
func segmentName(number uint64) string { return fmt.Sprintf("%s%016x", segmentPrefix, number) }

// files performs the file operations of a directory.
type files struct {
	// fault is set by tests only. It is called before an operation on size bytes. If it
	// returns an error, a write writes the returned number of bytes, and fails. If it returns
	// 0 for a sync, which has size 1, nothing is synced.
	fault func(operation, path string, size int) (int, error)
}

func (s *files) before(operation, path string, size int) (int, error) {
	if s.fault == nil {
		return size, nil
	}
	return s.fault(operation, path, size)
}

// create creates a file that must not exist.
func (s *files) create(path string) (*os.File, error) {
	if _, err := s.before("create", path, 0); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
}

func (s *files) write(f *os.File, b []byte) error {
	if n, err := s.before("write", f.Name(), len(b)); err != nil {
		_, _ = f.Write(b[:n])
		return err
	}
	_, err := f.Write(b)
	return err
}

func (s *files) sync(f *os.File) error {
	if n, err := s.before("sync", f.Name(), 1); err != nil || n == 0 {
		return err
	}
	return f.Sync()
}

// syncFolder makes created, renamed and removed files of a folder durable.
func (s *files) syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.sync(f)
}

// replace writes a file with content from a function: under another name, synced, renamed,
// and the folder synced. After a crash the file is there completely or not at all.
func (s *files) replace(path string, content func(write func([]byte) error) error) error {
	_ = os.Remove(path + unfinished)
	f, err := s.create(path + unfinished)
	if err != nil {
		return err
	}
	defer os.Remove(path + unfinished) //nolint:errcheck // it does not exist any more if all went well
	err = content(func(b []byte) error { return s.write(f, b) })
	if err == nil {
		err = s.sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if _, err := s.before("rename", path, 0); err != nil {
		return err
	}
	if err := os.Rename(path+unfinished, path); err != nil {
		return err
	}
	return s.syncFolder(filepath.Dir(path))
}

// readAt returns a part of a file. It does not allocate more than the file has.
func readAt(f *os.File, offset int64, size int) ([]byte, error) {
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

// open opens a file for reading.
func (s *files) open(path string) (*os.File, error) {
	if _, err := s.before("read", path, 0); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// readAll returns a whole file.
func (s *files) readAll(path string) ([]byte, error) {
	if _, err := s.before("read", path, 0); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
