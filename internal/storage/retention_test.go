// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
)

func maintain(d *Directory) { d.maintain(time.Now()) }

// TestRetention_logIsBounded writes for long: old segments are removed, and the mirror
// that does not change, the one that does, and the one that is not open stay loadable
// until the log is too long for the last.
func TestRetention_logIsBounded(t *testing.T) {
	path := t.TempDir()
	opts := &Options{Window: time.Nanosecond}
	d := openDirectory(t, path, opts)
	quiet := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	absent := newWorld(t, openMirror(t, d, identify("services"), MirrorOptions{}), 2)
	for _, w := range []*world{quiet, absent} {
		w.keys = 2
		w.fill(2)
		step(d)
	}
	finish(t, d)

	d = openDirectory(t, path, opts)
	quiet.mirror = openMirror(t, d, identify("configmaps"), MirrorOptions{})
	_, err := quiet.mirror.Load(0)
	must(t, err)
	busy := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 3)
	busy.fill(60)
	quiet.bookmark()
	most := int64(0)
	for range 400 {
		busy.change(3)
		step(d)
		maintain(d)
		var size int64
		for _, content := range allFiles(t, path) {
			size += int64(len(content))
		}
		most = max(most, size)
	}
	step(d)
	finish(t, d)
	written := d.Stats().Bytes
	t.Logf("%d bytes written, at most %d in files", written, most)
	if most > written/2 || most > 3*64<<10 {
		t.Errorf("%d bytes were written, and up to %d were in files", written, most)
	}
	for _, w := range []*world{quiet, busy} {
		s, err := load(t, path, w.mirror.id, nil, MirrorOptions{})
		must(t, err)
		must(t, w.truth.check(s))
		if s.Version != w.version {
			t.Errorf("%v: version %d instead of %d", w.mirror.id, s.Version, w.version)
		}
	}
	_, err = load(t, path, absent.mirror.id, nil, MirrorOptions{})
	if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Absent {
		t.Errorf("the mirror that was not opened: %v", err)
	}
}

// TestRetention_anotherIdentity has another cluster under the name of one: the files of the
// first stay loadable, as long as the past does, and are removed then.
func TestRetention_anotherIdentity(t *testing.T) {
	for name, size := range map[string]int{"in the log": 2, "in a snapshot": 60} {
		for limit, opts := range map[string]*Options{
			"window": {Window: time.Hour},
			"size":   {Window: time.Hour, WindowBytes: 1},
		} {
			t.Run(name+", "+limit, func(t *testing.T) {
				path := t.TempDir()
				before := storeWorld(t, path, "configmaps", 1, size)
				other := identify("configmaps")
				other.Cluster = "uid-2"
				d := openDirectory(t, path, opts)
				w := newWorld(t, openMirror(t, d, other, MirrorOptions{}), 2)
				w.fill(3)
				step(d)
				finish(t, d)
				s, err := load(t, path, before.mirror.id, opts, MirrorOptions{})
				must(t, err)
				must(t, before.truth.check(s))

				d = openDirectory(t, path, opts)
				w.mirror = openMirror(t, d, other, MirrorOptions{})
				s, err = w.mirror.Load(0)
				must(t, err)
				w.resume(s)
				for range 100 { // several segments
					w.change(3)
					step(d)
				}
				d.maintain(time.Now().Add(map[string]time.Duration{"window": 2 * time.Hour}[limit]))
				finish(t, d)
				_, err = load(t, path, before.mirror.id, opts, MirrorOptions{})
				if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Mismatched {
					t.Errorf("the files of the cluster before: %v", err)
				}
				s, err = load(t, path, other, opts, MirrorOptions{})
				must(t, err)
				must(t, w.truth.check(s))
			})
		}
	}
}

// TestRetention_twoInformers has two informers of one resource that differ in the version or in
// the transform. Whichever is opened first, both load their state in every run, and neither loses
// files when the past is removed.
func TestRetention_twoInformers(t *testing.T) {
	version, transform := identify("configmaps"), identify("configmaps")
	version.Version, transform.Transform = "v2", "drop:spec"
	for name, second := range map[string]Identity{"version": version, "transform": transform} {
		for kind, size := range map[string]int{"in the log": 2, "in a snapshot": 60} {
			t.Run(name+", "+kind, func(t *testing.T) {
				path := t.TempDir()
				worlds := []*world{}
				d := openDirectory(t, path, nil)
				for seed, id := range []Identity{identify("configmaps"), second} {
					w := newWorld(t, openMirror(t, d, id, MirrorOptions{}), uint64(seed))
					w.fill(size)
					worlds = append(worlds, w)
				}
				step(d)
				finish(t, d)
				for range 4 {
					slices.Reverse(worlds)
					runBoth(t, path, worlds)
				}
			})
		}
	}
}

// runBoth opens and loads mirrors as one process would, one after the other. The first has changes
// before the next one is opened. When all are open, all of the past is removed.
func runBoth(t *testing.T, path string, worlds []*world) {
	t.Helper()
	d := openDirectory(t, path, &Options{Window: time.Hour})
	for _, w := range worlds {
		w.mirror = openMirror(t, d, w.mirror.id, MirrorOptions{})
		s, err := w.mirror.Load(0)
		must(t, err)
		must(t, w.truth.check(s))
		w.resume(s)
		for range 20 { // several segments, and fewer than one replay may read
			w.change(3)
			step(d)
		}
		maintain(d)
	}
	d.maintain(time.Now().Add(2 * time.Hour))
	finish(t, d)
}

// TestRetention_waitsForReaders reads the past while files become too old.
func TestRetention_waitsForReaders(t *testing.T) {
	for name, opts := range map[string]*Options{
		"time": {Window: time.Nanosecond},
		"size": {Window: time.Hour, WindowBytes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			d := openDirectory(t, path, opts)
			w := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 1)
			w.fill(60)
			release := d.ledger.hold(d.Cluster("east"))
			files := func(now time.Time) int {
				d.maintain(now)
				return len(allFiles(t, path))
			}
			for range 100 {
				w.change(3)
				step(d)
			}
			now := time.Now()
			all := len(allFiles(t, path))
			if n := files(now); n < all {
				t.Errorf("%d of %d files are left for a reader", n, all)
			}
			if n := files(now.Add(d.limits.hold)); n > all/2 {
				t.Errorf("a reader keeps %d of %d files for ever", n, all)
			}
			for range 100 {
				w.change(3)
				step(d)
			}
			all = len(allFiles(t, path))
			if n := files(time.Now()); n < all {
				t.Errorf("%d of %d files are left for a reader", n, all)
			}
			release()
			if n := files(time.Now()); n > all/2 {
				t.Errorf("%d of %d files are left without a reader", n, all)
			}
		})
	}
}

// TestRetention_window keeps the changes of the window, across restarts.
func TestRetention_window(t *testing.T) {
	path := t.TempDir()
	var w *world
	var first uint64
	for n := range 4 {
		d := openDirectory(t, path, nil)
		d.limits.replay = 1 << 20
		m := openMirror(t, d, identify("pods"), MirrorOptions{})
		if n == 0 {
			w = newWorld(t, m, 4)
			w.fill(60)
			step(d)
			first = w.version
		} else {
			s, err := m.Load(1 << 20)
			must(t, err)
			w.mirror = m
			w.resume(s)
		}
		for range 50 {
			w.change(2)
			step(d)
			maintain(d)
		}
		finish(t, d)
	}
	for _, bytes := range []int64{1 << 20, 20 << 10, 0} {
		d := openDirectory(t, path, nil)
		s, err := openMirror(t, d, identify("pods"), MirrorOptions{}).Load(bytes)
		must(t, err)
		must(t, w.truth.check(s))
		t.Logf("%d bytes: %d records after version %d", bytes, len(s.Records), s.After)
		if bytes == 1<<20 && (s.After > first || len(s.Records) != 200) || bytes == 0 && len(s.Records) != 0 {
			t.Errorf("%d bytes: %d records after version %d, the first was %d", bytes, len(s.Records), s.After, first)
		}
		must(t, d.Close())
	}
}

// TestRetention_oneState writes one complete state each time the log has outgrown the last.
func TestRetention_oneState(t *testing.T) {
	d := openDirectory(t, t.TempDir(), nil)
	w := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 4)
	w.keys = 60
	w.fill(60)
	step(d)
	for n := int64(2); n < 6; n++ {
		for d.Stats().Snapshots < n {
			w.change(3)
			step(d)
		}
		for range 5 {
			w.change(1)
			step(d)
		}
		if got := d.Stats().Snapshots; got != n {
			t.Errorf("%d states were written instead of %d", got, n)
		}
	}
}

// TestRetention_era goes back to an older version: the window begins there.
func TestRetention_era(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	w := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 4)
	w.fill(3)
	w.change(2)
	step(d)
	w.change(2)
	step(d)
	w.goBack(50)
	w.change(1)
	step(d)
	finish(t, d)
	s, err := load(t, path, w.mirror.id, nil, MirrorOptions{})
	must(t, err)
	must(t, w.truth.check(s))
	if s.After != 50 || len(s.Records) != 1 {
		t.Errorf("%d records after %d", len(s.Records), s.After)
	}
}

// TestDictionaries_sweep removes the dictionaries that no file names.
func TestDictionaries_sweep(t *testing.T) {
	path := t.TempDir()
	for range 2 {
		d := openDirectory(t, path, &Options{Window: time.Nanosecond})
		m := openMirror(t, d, identify("pods"), MirrorOptions{Packer: trainedPacker(t)})
		w := newWorld(t, m, 4)
		w.body = 300
		w.fill(30)
		step(d)
		for range 20 {
			w.change(1)
			step(d)
			maintain(d)
		}
		finish(t, d)
	}
	count := func() int { return len(only(allFiles(t, filepath.Join(path, dictionariesFolder)), "")) }
	if n := count(); n != 2 {
		t.Fatalf("%d dictionaries", n)
	}
	d := openDirectory(t, path, nil)
	must(t, d.sweep())
	if n := count(); n != 1 {
		t.Errorf("%d dictionaries are left", n)
	}
	s, err := openMirror(t, d, identify("pods"), MirrorOptions{}).Load(0)
	must(t, err)
	if len(s.Objects) == 0 || !s.Objects[0].Packed() {
		t.Errorf("%d objects", len(s.Objects))
	}
	if label, _ := s.Objects[0].Label("app"); label != s.Objects[0].Name() {
		t.Errorf("label %q", label)
	}
	must(t, d.Close())
	for name, content := range only(allFiles(t, filepath.Join(path, dictionariesFolder)), "") {
		content[len(content)/2]++
		must(t, os.WriteFile(name, content, 0o600))
	}
	_, err = load(t, path, identify("pods"), nil, MirrorOptions{})
	if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Damaged {
		t.Errorf("with a damaged dictionary: %v", err)
	}
}

// TestFormat_newer refuses files of a newer format, and leaves them as they are.
func TestFormat_newer(t *testing.T) {
	path := t.TempDir()
	w := storeWorld(t, path, "pods", 4, 60)
	files := allFiles(t, path)
	for name, content := range files {
		switch {
		case strings.HasPrefix(filepath.Base(name), format.SegmentPrefix):
			must(t, os.WriteFile(name, append(format.NewHead(format.LogMagic, format.Version+1), "anything else"...),
				0o600))
		case strings.HasPrefix(filepath.Base(name), format.SnapshotPrefix):
			must(t, os.WriteFile(name,
				append(format.NewHead(format.SnapshotMagic, format.Version+1), content[format.HeadSize:]...), 0o600))
		default:
			continue
		}
		newer := allFiles(t, path)
		d := openDirectory(t, path, nil)
		w.mirror = openMirror(t, d, identify("pods"), MirrorOptions{})
		_, err := w.mirror.Load(0)
		if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Newer ||
			!strings.Contains(err.Error(), fmt.Sprint("format ", format.Version+1)) {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
		w.change(1)
		step(d)
		finish(t, d)
		if now := allFiles(t, path); string(now[name]) != string(newer[name]) || len(now) != len(newer) {
			t.Errorf("%s: the files of the newer program were changed", filepath.Base(name))
		}
		must(t, os.WriteFile(name, content, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(path, formatFile), fmt.Appendf(nil, "watershed %d\n", format.Version+1), 0o600))
	for _, open := range []func() error{
		func() error { _, err := Open(path, Options{}); return err },
		func() error { _, err := Verify(path, nil); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), fmt.Sprint("format ", format.Version+1)) {
			t.Errorf("a directory of a newer program: %v", err)
		}
	}
}
