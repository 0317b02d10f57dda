// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Lock reserves the directory for this server until release is called. If the process ends
// first, even by a crash, the operating system releases the directory.
func (s *Dir) Lock() (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.Path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	locked, err := lockFile(f)
	if locked {
		err = writeOwner(f)
	}
	if locked && err == nil {
		return func() { _ = f.Close() }, nil
	}
	defer f.Close()
	if err == nil {
		return nil, fmt.Errorf("state directory %s is in use by another watershed serve%s: stop that one, or choose "+
			"another directory with --state-dir", s.Path, owner(f))
	}
	return nil, fmt.Errorf("lock state directory %s: %w", s.Path, err)
}

// writeOwner writes the id of this process to a locked file.
func writeOwner(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// owner returns a description of the process that has locked the file, or "" if the
// process is not known.
func owner(f *os.File) string {
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0) // ReadAt also returns an error if the file is shorter than text
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}

// Locked reports whether a server runs with the state directory.
func (s *Dir) Locked() bool {
	f, err := os.OpenFile(filepath.Join(s.Path, "lock"), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	free, err := lockFile(f)
	return err == nil && !free
}
