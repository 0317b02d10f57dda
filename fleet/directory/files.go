// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"
)

const (
	// settleTime is how long a changed file must stay unchanged before it is read.
	// Many programs write files in place, and a partly written kubeconfig may be
	// valid.
	settleTime = 100 * time.Millisecond
	// timestampGranularity is how far apart two changes must be to have different
	// modification times on every file system. Some count in seconds.
	timestampGranularity = 2 * time.Second
)

// fileStates has the result of stat for each of several files, from just before they were
// read.
type fileStates struct {
	at    time.Time
	files map[string]fs.FileInfo // nil if stat failed
	// retry is set if the read failed for a reason that can end without a change of the
	// recorded files. Then the files are read again at the next poll.
	retry bool
	// contexts is set if a kubeconfig has the key of the contexts, even if it has none.
	contexts bool
}

func newFileStates() *fileStates { return &fileStates{at: time.Now(), files: map[string]fs.FileInfo{}} }

// note records a file that another package reads.
func (r *fileStates) note(path string) {
	info, err := os.Stat(path) // follows links
	if err != nil {
		info = nil
	}
	r.files[path] = info
}

// read records and reads a file. An empty file is an error: a caller that accepts one checks
// its size after note.
func (r *fileStates) read(path string) ([]byte, error) {
	r.note(path)
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
		r.retry = r.retry || !errors.Is(err, fs.ErrNotExist)
	case len(data) == 0:
		err = fmt.Errorf("read %s: the file is empty", path)
	}
	return data, err
}

// again records the same files as they are now.
func (r *fileStates) again() *fileStates {
	now := newFileStates()
	for path := range r.files {
		now.note(path)
	}
	return now
}

// same reports whether the files are unchanged between two results.
func (r *fileStates) same(other *fileStates) bool {
	return maps.EqualFunc(r.files, other.files, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return os.SameFile(a, b) && a.Mode() == b.Mode() && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}

// ambiguous reports whether a file was changed so shortly before it was read that
// another change could have left the same modification time.
func (r *fileStates) ambiguous() bool {
	for _, info := range r.files {
		if info != nil && r.at.Sub(info.ModTime()).Abs() < timestampGranularity {
			return true
		}
	}
	return false
}

// tracked decides when to read a set of files again.
type tracked struct {
	last *fileStates // of the last read; nil before the first
	// changed is the first result of the current change, nil if the files are as in
	// last.
	changed *fileStates
}

// due reports whether to read the files now. If not, soon reports whether to poll again
// after settleTime, because the files are changing.
func (t *tracked) due() (read, soon bool) {
	if t.last == nil {
		return true, false
	}
	now := t.last.again()
	switch {
	case now.same(t.last):
		t.changed = nil
		return t.last.retry || t.last.ambiguous(), false
	case t.changed == nil || !now.same(t.changed):
		t.changed = now
		return false, true
	default:
		settled := now.at.Sub(t.changed.at) >= settleTime
		return settled, !settled
	}
}

// done records a read.
func (t *tracked) done(r *fileStates) { t.last, t.changed = r, nil }
