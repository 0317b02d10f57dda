// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childDirectory); path != "" {
		runChild(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// TestMirror_roundTrip writes a small and a large mirror in several runs, and compares
// every loaded state and window with the states that the server had.
func TestMirror_roundTrip(t *testing.T) {
	for name, size := range map[string]int{"small": 2, "large": 60} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			var w *world
			records := 0
			for run := range 6 {
				d := openDirectory(t, path, nil)
				m := openMirror(t, d, identify("configmaps"), MirrorOptions{})
				s, err := m.Load(1 << 20)
				if run == 0 {
					if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Absent {
						t.Fatalf("an empty directory: %v", err)
					}
					w = newWorld(t, m, 1)
					w.keys = size
					w.fill(size)
				} else {
					must(t, err)
					if s.Version != w.version {
						t.Fatalf("run %d: version %d was loaded, %d was written", run, s.Version, w.version)
					}
					must(t, w.truth.check(s))
					records += len(s.Records)
					w.mirror = m
					w.resume(s)
				}
				for range 30 {
					w.random()
					step(d)
				}
				if st := m.Status(); st.Behind || st.Err != nil || st.Version != w.version {
					t.Fatalf("status %+v at version %d", st, w.version)
				}
				finish(t, d)
			}
			snapshots := len(only(allFiles(t, path), format.SnapshotPrefix))
			if (size > 10) != (snapshots > 1) || records < 30 {
				t.Errorf("%d snapshots, %d records in the windows", snapshots, records)
			}
		})
	}
}

func TestMirror_mode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	storeWorld(t, path, "configmaps", 1, 60)
	for name := range allFiles(t, path) {
		for ; len(name) >= len(path); name = filepath.Dir(name) {
			info, err := os.Stat(name)
			must(t, err)
			if want := map[bool]os.FileMode{true: 0o700, false: 0o600}[info.IsDir()]; info.Mode().Perm() != want {
				t.Errorf("%s has mode %v", name, info.Mode())
			}
		}
	}
}

// TestMirror_openRelist ends the process inside a relist: the state before it is loaded,
// and the next process can relist again.
func TestMirror_openRelist(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 3)
	w.fill(4)
	w.change(3)
	step(d)
	before := w.store.Snapshot().Version()
	for range 3 {
		w.relist(5, false)
		step(d)
		finish(t, d)
		d = openDirectory(t, path, nil)
		w.mirror = openMirror(t, d, identify("configmaps"), MirrorOptions{})
		s, err := w.mirror.Load(1 << 20)
		must(t, err)
		if s.Version != before {
			t.Fatalf("version %d, before the relist it was %d", s.Version, before)
		}
		must(t, w.truth.check(s))
		w.resume(s)
	}
	w.relist(2, true)
	w.change(2)
	step(d)
	finish(t, d)
	s, err := load(t, path, identify("configmaps"), nil, MirrorOptions{})
	must(t, err)
	must(t, w.truth.check(s))
	if s.Version != w.version {
		t.Errorf("version %d instead of %d", s.Version, w.version)
	}
	listed := 0
	for _, r := range s.Records {
		if r.Listed {
			listed++
		}
		for _, c := range r.Changes {
			if r.Listed != (c.Manager == "") || r.Time.IsZero() || c.Version == 0 {
				t.Errorf("change %+v of a record with Listed=%v", c, r.Listed)
			}
		}
	}
	if listed != 1 {
		t.Errorf("%d records are of a relist", listed)
	}
}

func TestMirror_identity(t *testing.T) {
	path := t.TempDir()
	storeWorld(t, path, "configmaps", 1, 60)
	other := identify("configmaps")
	other.Cluster = "uid-2"
	another := identify("pods")
	form := identify("configmaps")
	form.Form = "metadata"
	for _, id := range []Identity{another, form, identify("configmaps"), other, identify("configmaps")} {
		_, err := load(t, path, id, nil, MirrorOptions{})
		r := (*Rejection)(nil)
		if id == identify("configmaps") {
			must(t, err)
		} else if want := map[Identity]reader.Reason{
			another: reader.Absent, form: reader.Absent, other: reader.Mismatched,
		}[id]; !errors.As(err, &r) || r.Reason != want {
			t.Errorf("%v: %v instead of %s", id, err, want)
		} else if id == other && r.Err.Error() != `cluster is "uid-2" and was "uid-1"` {
			t.Errorf("the difference is: %v", r.Err)
		}
	}
}

// TestCluster_has asks for complete states before and after their mirrors are opened, and for a
// damaged one.
func TestCluster_has(t *testing.T) {
	path := t.TempDir()
	id, other := identify("configmaps"), identify("configmaps")
	other.Encoding = "protobuf"
	has := func(d *Directory, want bool) {
		t.Helper()
		if c := d.Cluster("east"); c.Has(id) != want || c.Has(other) {
			t.Errorf("a complete state: %v, in another encoding: %v", c.Has(id), c.Has(other))
		}
	}
	d := openDirectory(t, path, nil)
	m := openMirror(t, d, id, MirrorOptions{})
	has(d, false)
	newWorld(t, m, 1).fill(60)
	has(d, false)
	step(d)
	has(d, true)
	m.Close()
	has(d, true)
	finish(t, d)
	d = openDirectory(t, path, nil)
	has(d, true)
	must(t, d.Close())
	for name := range only(allFiles(t, path), format.SnapshotPrefix) {
		must(t, os.Truncate(name, 100))
	}
	d = openDirectory(t, path, nil)
	has(d, true)
	must(t, d.Close())
}

// TestDirectory_twoProcesses opens a directory twice.
func TestDirectory_twoProcesses(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	if _, err := Open(path, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("the second open returned %v", err)
	}
	must(t, d.Close())
	again := openDirectory(t, path, nil)
	must(t, again.Close())
}
