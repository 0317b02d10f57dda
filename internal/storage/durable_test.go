// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// TestFault_headerCannotBeWritten fills the disk when the header of a segment is written. The
// next header has the dictionaries of the segment before, and the sweep of the next process
// leaves them.
func TestFault_headerCannotBeWritten(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	d.limits.minLog, d.limits.replay, d.limits.chunk = 1<<20, 1<<20, 64<<10 // complete states are in the log
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{Packer: trainedPacker(t)}), 1)
	w.keys, w.body = 2, 300
	w.fill(2)
	for range 4 {
		step(d)
		w.change(2)
	}
	step(d)
	c, past := d.Cluster("east"), w.version
	named := len(c.log.sums)
	must(t, c.log.finish(c))
	full := true
	d.files.Fault = func(operation, name string, size int) (int, error) {
		if operation == "write" && strings.Contains(name, format.SegmentPrefix) && full {
			full = false
			return 0, syscall.ENOSPC
		}
		return size, nil
	}
	w.change(1)
	step(d)
	w.mirror.opts.Packer = nil // later segments do not name the dictionary themselves
	for i := range 3 {
		w.change(1)
		stepAt(d, time.Now().Add(time.Duration(i)*time.Minute))
	}
	finish(t, d)
	if named == 0 || full {
		t.Fatal("no dictionary was named, or the disk was not full: hardly a test")
	}
	d = openDirectory(t, path, nil)
	must(t, d.sweep())
	_, err := d.Cluster("east").At(identify("configmaps"), Moment{Version: past})
	must(t, err)
}

// TestFault_syncFails loses a complete state because its segment cannot be synced. The durable
// state before it stays.
func TestFault_syncFails(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, &Options{Window: time.Millisecond, WindowBytes: 1})
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.keys = 2
	w.fill(2)
	step(d)
	c := d.Cluster("east")
	must(t, c.log.finish(c))
	w.want()
	w.change(1)
	step(d) // the second segment has a complete state
	d.files.Fault = func(operation, _ string, size int) (int, error) {
		if operation == "sync" || operation == "create" {
			return 0, syscall.EIO
		}
		return size, nil
	}
	if c.sync() == nil {
		t.Fatal("the sync did not fail")
	}
	for range 2 {
		d.maintain(time.Now().Add(time.Hour))
	}
	must(t, d.Close())
	must(t, os.Truncate(filepath.Join(c.folder, format.SegmentName(2)), 0)) // the kernel has dropped it
	s, err := load(t, path, identify("configmaps"), nil, MirrorOptions{})
	must(t, err)
	must(t, w.truth.check(s))
}

// TestSync_foldersOfAnotherProcess syncs the folders that a killed process has created, and may
// not have synced.
func TestSync_foldersOfAnotherProcess(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	must(t, os.MkdirAll(d.Cluster("east").folder, format.FolderMode))
	synced := map[string]int{}
	d.files.Fault = func(operation, name string, size int) (int, error) {
		if operation == "sync" {
			synced[strings.TrimPrefix(name, path)]++
		}
		return size, nil
	}
	newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1).fill(3)
	step(d)
	if synced[""] == 0 || synced["/"+clustersFolder] == 0 {
		t.Errorf("synced: %v", synced)
	}
}

// TestSync_takenOver syncs what a new segment continues: the folders, and the segment of a
// process that was killed.
func TestSync_takenOver(t *testing.T) {
	path := t.TempDir()
	synced := map[string]int{}
	var w *world
	for process := range 2 {
		d := openDirectory(t, path, nil)
		d.files.Fault = func(operation, name string, size int) (int, error) {
			if operation == "sync" {
				synced[strings.TrimPrefix(name, path)]++
			}
			return size, nil
		}
		m := openMirror(t, d, identify("configmaps"), MirrorOptions{})
		if process == 0 {
			w = newWorld(t, m, 1)
			w.fill(3)
		} else {
			s, err := m.Load(0)
			must(t, err)
			w.mirror = m
			w.resume(s)
			w.change(1)
		}
		step(d)
		must(t, d.Close()) // the process is killed
	}
	first := "/" + clustersFolder + "/" + clusterFolder("east") + "/" + format.SegmentName(1)
	for _, name := range []string{"", "/" + clustersFolder, first} {
		if synced[name] == 0 {
			t.Errorf("%q was not synced: %v", name, synced)
		}
	}
}
