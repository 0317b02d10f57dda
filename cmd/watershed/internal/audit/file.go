// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync/atomic"
)

// file is a file of lines that is replaced when it is full. One goroutine uses it, except for
// the rotation.
type file struct {
	path     string
	rotation atomic.Pointer[rotation]

	open *os.File // nil before it is opened, and after an error
	size int64
	// torn means that the file ends with a part of a line.
	torn bool
}

// rotation is when a file is replaced. It is replaced, not modified.
type rotation struct {
	// most is the most bytes that a file may have, and backups how many old files remain.
	most    int64
	backups int
}

// openFile opens a file to append to it, and creates it if it does not exist.
func openFile(path string, most int64, backups int) (*file, error) {
	f := &file{path: path}
	f.rotation.Store(&rotation{most: most, backups: backups})
	if err := f.reopen(); err != nil {
		return nil, err
	}
	return f, nil
}

// reopen opens the file at the path.
func (f *file) reopen() error {
	f.close()
	if is, err := os.Stat(f.path); err == nil && !is.Mode().IsRegular() {
		return fmt.Errorf("audit log %s: not a regular file; use - for the standard output", f.path)
	}
	// Events say what each user reads, so others must not read them.
	open, err := os.OpenFile(f.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	is, err := open.Stat()
	if err != nil {
		_ = open.Close()
		return fmt.Errorf("audit log: %w", err)
	}
	f.open, f.size = open, is.Size()
	var last [1]byte
	if f.size > 0 {
		n, _ := open.ReadAt(last[:], f.size-1)
		f.torn = n == 1 && last[0] != '\n'
	}
	return nil
}

func (f *file) close() {
	if f.open != nil {
		_ = f.open.Close()
	}
	f.open, f.size, f.torn = nil, 0, false
}

// write appends lines, and returns how many bytes of whole lines the files have received.
func (f *file) write(lines []byte) (done int, err error) {
	if err := f.follow(); err != nil {
		return 0, err
	}
	for done < len(lines) {
		part := f.fitting(lines[done:])
		if len(part) == 0 {
			if err := f.rotate(); err != nil {
				return done, err
			}
			continue
		}
		n, err := f.append(part)
		done += n
		if err != nil {
			return done, fmt.Errorf("audit log: %w", err)
		}
	}
	return done, nil
}

// follow opens the file again if another program has moved or removed it, or the last write
// has failed.
func (f *file) follow() error {
	if f.open != nil {
		at, err := os.Stat(f.path)
		if is, openErr := f.open.Stat(); err == nil && openErr == nil && os.SameFile(at, is) {
			f.size = is.Size() // another program may have truncated it
			return nil
		}
	}
	return f.reopen()
}

// fitting returns the first lines that fit into the file, and none if it must be rotated. A
// line that is larger than a file has a file of its own.
func (f *file) fitting(lines []byte) []byte {
	room := f.rotation.Load().most - f.size
	if int64(len(lines)) <= room {
		return lines
	}
	if room > 0 {
		if end := bytes.LastIndexByte(lines[:room], '\n'); end >= 0 {
			return lines[:end+1]
		}
	}
	if f.size > 0 {
		return nil
	}
	return lines[:bytes.IndexByte(lines, '\n')+1]
}

// append writes lines to the file. If it fails, the part of the last line is removed.
func (f *file) append(lines []byte) (int, error) {
	if f.torn {
		if _, err := f.open.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		f.torn = false
		f.size++
	}
	n, err := f.open.Write(lines)
	if err == nil {
		f.size += int64(n)
		return n, nil
	}
	whole := bytes.LastIndexByte(lines[:n], '\n') + 1
	if f.open.Truncate(f.size+int64(whole)) != nil {
		f.torn = whole < n
	}
	f.size += int64(whole)
	return whole, err
}

// rotate gives each old file the next number, removes the oldest one, and begins a new file.
func (f *file) rotate() error {
	f.close()
	backups := f.rotation.Load().backups
	name := func(i int) string {
		if i == 0 {
			return f.path
		}
		return f.path + "." + strconv.Itoa(i)
	}
	// There may have been more.
	for i := backups + 1; os.Remove(name(i)) == nil; i++ {
	}
	if backups == 0 {
		if err := os.Remove(f.path); err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		return f.reopen()
	}
	for i := backups - 1; i >= 0; i-- {
		if err := os.Rename(name(i), name(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("audit log: %w", err)
		}
	}
	return f.reopen()
}
