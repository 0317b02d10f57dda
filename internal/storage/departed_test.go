// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// sizeOfCluster returns the size of the files of a cluster.
func sizeOfCluster(t *testing.T, path, name string) (n int) {
	t.Helper()
	for file, content := range allFiles(t, path) {
		if strings.Contains(file, clusterFolder(name)) {
			n += len(content)
		}
	}
	return n
}

// makeNewer makes files those of a newer program.
func makeNewer(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		binary.LittleEndian.PutUint32(b[8:], format.Version+1)
		binary.LittleEndian.PutUint32(b[12:], format.Checksum(b[:12]))
		must(t, os.WriteFile(name, b, 0o600))
	}
}

// TestRetention_departedCluster removes the files of a cluster that is not opened any more:
// when they are older than the window, or when there are too many files, and not soon after
// a start.
func TestRetention_departedCluster(t *testing.T) {
	for _, c := range []struct {
		what   string
		opts   Options
		after  time.Duration
		opened bool
		newer  bool
		gone   bool
	}{
		{what: "soon after a start", opts: Options{Window: time.Minute, WindowBytes: 1}, after: 50 * time.Minute},
		{what: "within the window", opts: Options{Window: 24 * time.Hour}, after: 2 * time.Hour},
		{what: "after the window", opts: Options{Window: 24 * time.Hour}, after: 25 * time.Hour, gone: true},
		{
			what:  "too many files",
			opts:  Options{Window: 24 * time.Hour, WindowBytes: 1},
			after: 2 * time.Hour,
			gone:  true,
		},
		{what: "opened", opts: Options{Window: 24 * time.Hour}, after: 25 * time.Hour, opened: true},
		{
			what:  "a newer program",
			opts:  Options{Window: time.Minute, WindowBytes: 1},
			after: 25 * time.Hour,
			newer: true,
		},
	} {
		path := t.TempDir()
		storeWorld(t, path, "configmaps", 1, 60)
		if c.newer {
			makeNewer(t, only(allFiles(t, path), format.SegmentPrefix))
		}
		before := sizeOfCluster(t, path, "east")
		d := openDirectory(t, path, &c.opts)
		m, err := d.Cluster("west").Mirror(identify("configmaps"), MirrorOptions{})
		must(t, err)
		w := newWorld(t, m, 2)
		w.fill(10)
		step(d)
		if c.opened {
			d.Cluster("east")
		}
		d.maintain(time.Now().Add(c.after))
		d.maintain(time.Now().Add(c.after + time.Second))
		if after := sizeOfCluster(t, path, "east"); after != before && after != 0 || (after == 0) != c.gone {
			t.Errorf("%s: %d of %d bytes are left", c.what, after, before)
		}
		if sizeOfCluster(t, path, "west") == 0 {
			t.Errorf("%s: the files of the open cluster are gone", c.what)
		}
		finish(t, d)
	}
}

// TestRetention_newerFiles leaves the files of a newer program in an open cluster as they are.
func TestRetention_newerFiles(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.fill(4)
	for range 60 {
		w.change(3)
		step(d)
	}
	finish(t, d)
	makeNewer(t, only(allFiles(t, path), format.SegmentPrefix))
	before := len(only(allFiles(t, path), format.SegmentPrefix))
	d = openDirectory(t, path, &Options{Window: time.Minute, WindowBytes: 1})
	openMirror(t, d, identify("configmaps"), MirrorOptions{})
	d.maintain(time.Now().Add(time.Hour))
	if n := len(only(allFiles(t, path), format.SegmentPrefix)); n != before {
		t.Errorf("%d of %d segments are left", n, before)
	}
}

// TestOpen_unfinishedFiles removes the files that a killed process was writing.
func TestOpen_unfinishedFiles(t *testing.T) {
	path := t.TempDir()
	w := storeWorld(t, path, "configmaps", 1, 60)
	folder := w.mirror.cluster.folder
	dictionaries := filepath.Join(path, dictionariesFolder)
	must(t, os.MkdirAll(dictionaries, format.FolderMode))
	for _, name := range []string{
		filepath.Join(folder, format.SnapshotName(w.mirror.digest, format.Position{Segment: 7, Offset: 100})+
			format.Unfinished),
		filepath.Join(dictionaries, "0011"+format.Unfinished),
	} {
		must(t, os.WriteFile(name, []byte("the beginning"), format.FileMode))
	}
	d := openDirectory(t, path, nil)
	_, err := openMirror(t, d, identify("configmaps"), MirrorOptions{}).Load(0)
	must(t, err)
	if left := only(allFiles(t, path), format.Unfinished); len(left) > 0 {
		t.Errorf("%d unfinished files are left", len(left))
	}
}
