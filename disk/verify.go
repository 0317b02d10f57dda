// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Report is the result of [Verify].
type Report struct {
	// InUse means that a process has the directory open. Files may change during the
	// verification, and a mirror that is being written may be reported as damaged.
	InUse    bool
	Clusters []ClusterReport
	// Dictionaries is the number of dictionaries, and DictionaryBytes their size.
	Dictionaries    int
	DictionaryBytes int64
}

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
	Identity Identity
	Version  uint64
	Time     time.Time
	Objects  int
	// Records is the number of batches in the log that lead to the state.
	Records int
	Err     error
}

// Verify reads all files of a directory and checks them. It changes nothing. Keys decrypts
// encrypted mirrors and may be nil; without it their objects are not checked.
func Verify(path string, keys Keys) (*Report, error) {
	if _, err := checkFormat(path); err != nil {
		return nil, fmt.Errorf("disk: directory %s: %w", path, err)
	}
	r := &Report{}
	if f, err := os.Open(filepath.Join(path, lockFile)); err == nil {
		r.InUse = lock(f) != nil
		_ = f.Close() // it also unlocks
	}
	s := &files{}
	dictionaries := newDictionaries(s, filepath.Join(path, dictionariesFolder), keys, func() {})
	if entries, err := os.ReadDir(filepath.Join(path, dictionariesFolder)); err == nil {
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				r.Dictionaries, r.DictionaryBytes = r.Dictionaries+1, r.DictionaryBytes+info.Size()
			}
		}
	}
	folders, err := clusterFolders(path)
	if err != nil {
		return nil, fmt.Errorf("disk: directory %s: %w", path, err)
	}
	for _, path := range folders {
		f := &folder{files: s, path: path, keys: keys, dictionaries: dictionaries, kind: kindOf}
		r.Clusters = append(r.Clusters, f.verify())
	}
	return r, nil
}

// verify loads every mirror of the cluster, and checks all files.
func (f *folder) verify() ClusterReport {
	r := ClusterReport{Folder: f.path}
	x, err := readIndex(f.files, f.path)
	r.Name, r.Err = x.name, err
	entries, err := os.ReadDir(f.path)
	r.Err = errors.Join(r.Err, err)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			r.Bytes += info.Size()
		}
	}
	for i, number := range x.segments {
		if info, err := os.Stat(filepath.Join(f.path, segmentName(number))); err == nil {
			r.LogBytes += info.Size()
		}
		if h, err := readHeader(x.folder, number); err == nil && i == 0 {
			r.Since = h.Time
		}
	}
	for name, err := range x.damaged {
		r.Err = errors.Join(r.Err, fmt.Errorf("%s: %w", name, err))
	}
	damagedIndexes, err := x.verifyWindow(f.keys)
	r.DamagedIndexes, r.Err = damagedIndexes, errors.Join(r.Err, err)
	for _, stored := range x.mirrors {
		m := MirrorReport{Identity: stored.identity}
		state, err := f.load(x, stored, f.kind(stored.identity), 1<<30)
		if state == nil {
			m.Err = rejection(stored.identity, err)
		} else {
			m.Version, m.Time, m.Objects, m.Records = state.Version, state.Time, len(state.Objects), len(state.Records)
		}
		r.Mirrors = append(r.Mirrors, m)
	}
	slices.SortFunc(r.Mirrors, func(a, b MirrorReport) int { return cmp.Compare(a.Identity.String(), b.Identity.String()) })
	return r
}

// verifyWindow checks all segments, and the chunks of all snapshots. A load reads only some
// of them, and does without those that only the window needs. It returns the number of damaged
// index frames too.
func (x *index) verifyWindow(keys Keys) (damagedIndexes int, err error) {
	var errs []error
	for i, number := range x.segments {
		n, err := x.verifySegment(number, i+1 == len(x.segments))
		if damagedIndexes += n; err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range x.mirrors {
		for _, s := range f.snapshots {
			if err := s.items(x.files, keys, "", func(*item) error { return nil }); err != nil && !errors.Is(err, errLocked) {
				errs = append(errs, fmt.Errorf("%v: %w", f.identity, err))
			}
		}
	}
	return damagedIndexes, errors.Join(errs...)
}

// verifySegment checks the checksums of a segment. A damaged index frame is counted, and is not an
// error.
func (x *index) verifySegment(number uint64, last bool) (damagedIndexes int, err error) {
	length := int64(-1)
	if !last {
		next, err := readHeader(x.folder, number+1)
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
	if c.lost || slices.ContainsFunc(c.frames, func(f frame) bool { return f.kind == damagedFrame }) {
		err = fmt.Errorf("%s: %w, or frames are missing after %d bytes", segmentName(number), errChecksum, c.end)
	}
	return c.damagedIndexes, err
}
