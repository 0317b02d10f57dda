// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"
)

// Files are looked at and not watched: a mounted Secret is changed by swapping a
// symbolic link somewhere above the file, network file systems tell nobody, and to
// look at a thousand files takes a few milliseconds.
const (
	// defaultInterval is how often files are looked at.
	defaultInterval = 2 * time.Second
	// settling is how long a file that has changed must have been left alone before
	// it is read, since many programs write in place: what is there meanwhile is
	// cut off, and may make sense all the same.
	settling = 100 * time.Millisecond
	// coarse is how long two changes may have the same time, in file systems that
	// count time in seconds.
	coarse = 2 * time.Second
)

// reading notes the files that something is read from, as they were before it was
// read.
type reading struct {
	at    time.Time
	files map[string]fs.FileInfo // nil: it could not be looked at
	// failed says that one is there and could not be read, for a reason that may go
	// away without a trace on the file.
	failed bool
}

func newReading() *reading { return &reading{at: time.Now(), files: map[string]fs.FileInfo{}} }

// note looks at a file that somebody else is going to read.
func (r *reading) note(path string) {
	info, err := os.Stat(path) // follows links
	if err != nil {
		info = nil
	}
	r.files[path] = info
}

// read reads a file, which has something in it.
func (r *reading) read(path string) ([]byte, error) {
	r.note(path)
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
		r.failed = r.failed || !errors.Is(err, fs.ErrNotExist)
	case len(data) == 0:
		err = fmt.Errorf("read %s: it is empty", path)
	}
	return data, err
}

// again looks at the same files now.
func (r *reading) again() *reading {
	now := newReading()
	for path := range r.files {
		now.note(path)
	}
	return now
}

// same reports whether nothing has changed between two looks.
func (r *reading) same(other *reading) bool {
	return maps.EqualFunc(r.files, other.files, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return os.SameFile(a, b) && a.Mode() == b.Mode() && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}

// fresh reports whether a file was changed so shortly before it was read that it
// may have changed again without a trace.
func (r *reading) fresh() bool {
	for _, info := range r.files {
		if info != nil && r.at.Sub(info.ModTime()).Abs() < coarse {
			return true
		}
	}
	return false
}

// tracked is something that was read from files and is to be read again when they
// have changed.
type tracked struct {
	last *reading // nil before the first
	// seen is how the files look now, since seen.at, if that is not as in last.
	seen *reading
}

// due reports whether to read, or else whether to look again soon because there is
// a change that has not settled.
func (t *tracked) due() (read, soon bool) {
	if t.last == nil {
		return true, false
	}
	now := t.last.again()
	switch {
	case now.same(t.last):
		t.seen = nil
		return t.last.failed || t.last.fresh(), false
	case t.seen == nil || !now.same(t.seen):
		t.seen = now
		return false, true
	default:
		settled := now.at.Sub(t.seen.at) >= settling
		return settled, !settled
	}
}

// done notes what was read.
func (t *tracked) done(r *reading) { t.last, t.seen = r, nil }

// poll calls look at once and then every interval, or soon if it says so, until ctx
// ends.
func poll(ctx context.Context, interval time.Duration, look func() (soon bool)) {
	if interval <= 0 {
		interval = defaultInterval
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return
		}
		wait := interval
		if look() {
			wait = min(wait, settling)
		}
		timer.Reset(wait)
	}
}

// complaint is an error that lasts.
type complaint struct{ last string }

// isNew reports whether err, which may be nil, is an error that was not there the
// last time, and so is to be logged.
func (c *complaint) isNew(err error) bool {
	before := c.last
	c.last = ""
	if err != nil {
		c.last = err.Error()
	}
	return c.last != "" && c.last != before
}
