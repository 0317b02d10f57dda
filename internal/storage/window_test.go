// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// sizeOf returns the size of the files whose path contains a text.
func sizeOf(t *testing.T, path, text string) (size int64) {
	t.Helper()
	for name, content := range allFiles(t, path) {
		if strings.Contains(name, text) {
			size += int64(len(content))
		}
	}
	return size
}

// reopened continues a world with a new handle of its mirror, or begins one.
func (w *world) reopened(t *testing.T, m *Mirror, size int, now func() time.Time) *world {
	t.Helper()
	if w == nil {
		w = newWorld(t, m, uint64(size))
		w.now, w.keys = now, size
		w.fill(size)
		return w
	}
	s, err := m.Load(1 << 20)
	must(t, err)
	must(t, w.truth.check(s))
	w.mirror = m
	w.resume(s)
	return w
}

// TestWindow_time writes for 12 hours with a window of one hour, in processes of 95
// minutes. All states of the last hour can be read, and old files are removed.
func TestWindow_time(t *testing.T) {
	const window = time.Hour
	path, opts := t.TempDir(), &Options{Window: window}
	now := time.Now().Add(-24 * time.Hour)
	sizes := map[string]int{"pods": 60, "services": 2, "nodes": 3}
	worlds := map[string]*world{}
	var d *Directory
	var a answers
	for minute := range 12 * 60 {
		now = now.Add(time.Minute)
		if minute%95 == 0 {
			if d != nil {
				finish(t, d)
			}
			d = openDirectory(t, path, opts)
			for resource, size := range sizes {
				m := openMirror(t, d, identify(resource), MirrorOptions{})
				worlds[resource] = worlds[resource].reopened(t, m, size, func() time.Time { return now })
			}
		}
		worlds["pods"].change(3)
		worlds["services"].change(1)
		if minute%95 == 0 { // the nodes hardly ever change
			worlds["nodes"].bookmark()
		}
		stepAt(d, now)
		d.maintain(now)
		if minute%50 != 49 {
			continue
		}
		for _, w := range worlds {
			for at := now; at.After(now.Add(-min(window, time.Duration(minute)*time.Minute))); at = at.Add(
				-7 * time.Minute,
			) {
				must(t, a.at(d.Cluster("east"), w.mirror.id, w.past, Moment{Time: at}))
			}
		}
	}
	if a.tooOld+a.rejected+a.atEnd > 0 || a.exact < 100 {
		t.Errorf("within the window: %+v", a)
	}
	for resource, w := range worlds {
		_, err := d.Cluster("east").At(w.mirror.id, Moment{Time: now.Add(-5 * window)})
		e := (*TooOldError)(nil)
		if !errors.As(err, &e) {
			t.Errorf("%s before the window: %v", resource, err)
			continue
		}
		t.Logf("%s reach back %v", resource, now.Sub(e.Time))
	}
	kept := sizeOf(t, path, clustersFolder)
	t.Logf("%d bytes are kept", kept)
	if kept > 1<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// TestWindow_bytes writes to one cluster and then to another. When both are too large
// together, the files of the first are removed first, except those that restore it.
func TestWindow_bytes(t *testing.T) {
	const limit = 200 << 10
	path := t.TempDir()
	d := openDirectory(t, path, &Options{Window: 1000 * time.Hour, WindowBytes: limit})
	var worlds []*world
	write := func(w *world, bytes int64) {
		t.Helper()
		for before := d.Stats().Bytes; d.Stats().Bytes < before+bytes; {
			w.change(3)
			step(d)
			maintain(d)
		}
		var newest int64
		for _, w := range worlds {
			newest += w.mirror.entry.baseBytes
		}
		if size := sizeOf(t, path, clustersFolder); size > limit+newest+4<<10 {
			t.Errorf("%d bytes are kept, of which %d are the newest snapshots", size, newest)
		}
	}
	first := func(w *world) (a answers) {
		t.Helper()
		must(t, a.at(w.mirror.cluster, w.mirror.id, w.past, Moment{Time: w.past[0].time}))
		return a
	}
	for i, cluster := range []string{"east", "west"} {
		m, err := d.Cluster(cluster).Mirror(identify("pods"), MirrorOptions{})
		must(t, err)
		w := newWorld(t, m, uint64(i))
		w.keys = 40
		w.fill(40)
		step(d)
		worlds = append(worlds, w)
		write(w, limit*2/5)
	}
	if east, west := first(worlds[0]), first(worlds[1]); east.exact+west.exact != 2 {
		t.Fatalf("before the limit: east %+v, west %+v", east, west)
	}
	write(worlds[1], limit*2/5)
	if east, west := first(worlds[0]), first(worlds[1]); east.tooOld != 1 || west.exact != 1 {
		t.Errorf("at the limit: east %+v, west %+v", east, west)
	}
	write(worlds[1], limit)
	if west := first(worlds[1]); west.tooOld != 1 {
		t.Errorf("after the limit: west %+v", west)
	}
	for _, w := range worlds {
		var a answers
		must(t, a.at(w.mirror.cluster, w.mirror.id, w.past, Moment{Time: time.Now()}))
		if a.exact != 1 {
			t.Errorf("%s: the newest state: %+v", w.mirror.cluster.name, a)
		}
	}
	if older := len(only(allFiles(t, d.Cluster("east").folder), format.SnapshotPrefix)); older != 1 {
		t.Errorf("%d snapshots of the first cluster are left", older)
	}
}
