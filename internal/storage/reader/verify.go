// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// ClusterReport is the part of one cluster.
type ClusterReport struct {
	// Name is the name of the cluster, empty if no file can be read. Folder is its path.
	Name, Folder string
	// Bytes is the size of all files, LogBytes that of the log.
	Bytes, LogBytes int64
	// Since is when the oldest segment of the log began.
	Since time.Time
	// Err is why a file cannot be read. Mirrors that do not need the file have no error.
	Err error
	// DamagedIndexes is how many parts of the log have a damaged index by key. Nothing is lost
	// with it: reads of the past of one object read the whole segment instead.
	DamagedIndexes int
	Mirrors        []MirrorReport
}

// MirrorReport is the part of one mirror. If Err is not nil, the mirror would be listed
// again.
type MirrorReport struct {
	Identity format.Identity
	Version  uint64
	Time     time.Time
	Objects  int
	// Records is the number of batches in the log that lead to the state.
	Records int
	Err     error
}

// Verify loads every mirror of the cluster, and checks all files.
func (f *Folder) Verify() ClusterReport {
	r := ClusterReport{Folder: f.Path}
	x, err := ReadIndex(f.Files, f.Path)
	r.Name, r.Err = x.name, err
	entries, err := os.ReadDir(f.Path)
	r.Err = errors.Join(r.Err, err)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			r.Bytes += info.Size()
		}
	}
	for i, number := range x.Segments {
		if info, err := os.Stat(filepath.Join(f.Path, format.SegmentName(number))); err == nil {
			r.LogBytes += info.Size()
		}
		if h, err := format.ReadHeader(x.folder, number); err == nil && i == 0 {
			r.Since = h.Time
		}
	}
	for name, err := range x.Damaged {
		r.Err = errors.Join(r.Err, fmt.Errorf("%s: %w", name, err))
	}
	damagedIndexes, err := x.verifyWindow(f.Keys)
	r.DamagedIndexes, r.Err = damagedIndexes, errors.Join(r.Err, err)
	for _, stored := range x.Mirrors {
		m := MirrorReport{Identity: stored.Identity}
		state, err := f.Load(x, stored, f.Kind(stored.Identity), 1<<30)
		if state == nil {
			m.Err = Reject(stored.Identity, err)
		} else {
			m.Version = state.Version
			m.Time = state.Time
			m.Objects = len(state.Objects)
			m.Records = len(state.Records)
		}
		r.Mirrors = append(r.Mirrors, m)
	}
	slices.SortFunc(r.Mirrors, func(a, b MirrorReport) int {
		return cmp.Compare(a.Identity.String(), b.Identity.String())
	})
	return r
}

// verifyWindow checks all segments, and the chunks of all snapshots. A load reads only some
// of them, and does without those that only the window needs. It returns the number of damaged
// index frames too.
func (x *Index) verifyWindow(keys format.Keys) (damagedIndexes int, err error) {
	var errs []error
	for i, number := range x.Segments {
		n, err := x.verifySegment(number, i+1 == len(x.Segments))
		if damagedIndexes += n; err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range x.Mirrors {
		for _, s := range f.Snapshots {
			err := s.Items(x.files, keys, "", func(*format.Item) error { return nil })
			if err != nil && !errors.Is(err, format.ErrLocked) {
				errs = append(errs, fmt.Errorf("%v: %w", f.Identity, err))
			}
		}
	}
	return damagedIndexes, errors.Join(errs...)
}

// verifySegment checks the checksums of a segment. A damaged index frame is counted, and is not an
// error.
func (x *Index) verifySegment(number uint64, last bool) (damagedIndexes int, err error) {
	length := int64(-1)
	if !last {
		next, err := format.ReadHeader(x.folder, number+1)
		if err != nil {
			return 0, err
		}
		length = next.Previous
	}
	part, err := x.read(number, length, last)
	if err != nil {
		return 0, err
	}
	c := part.rest
	if c.Lost || slices.ContainsFunc(c.Frames, func(f format.Frame) bool { return f.Kind == format.DamagedFrame }) {
		err = fmt.Errorf("%s: %w, or frames are missing after %d bytes",
			format.SegmentName(number), format.ErrChecksum, c.End)
	}
	return c.DamagedIndexes, err
}
