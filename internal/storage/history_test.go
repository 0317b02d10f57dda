// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// versionsOf returns the versions of the records of one mirror, and the errors between them.
func versionsOf(entries iter.Seq2[Entry, error], resource string) (versions []uint64, errs []error) {
	for e, err := range entries {
		if err != nil {
			errs = append(errs, err)
		} else if e.Identity.Resource == resource {
			versions = append(versions, e.Version)
		}
	}
	return versions, errs
}

// TestObjectHistory_holdsOneFrame reads the history of an object with large changes: only the
// current one is in memory.
func TestObjectHistory_holdsOneFrame(t *testing.T) {
	const size, changes = 64 << 10, 100
	d := openDirectory(t, t.TempDir(), nil)
	d.limits = defaultLimits
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.keys, w.body = 1, size
	w.fill(1)
	for range changes {
		w.change(1)
		step(d)
	}
	finish(t, d)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	n, most, before := 0, int64(0), heap()
	for entry, err := range newCluster(d, "east").ObjectHistory(w.mirror.id, "shop/item-0000", time.Time{},
		time.Time{}) {
		must(t, err)
		n += len(entry.Changes)
		most = max(most, heap()-before)
	}
	if n < changes/2 || most > 10*size {
		t.Errorf("%d changes of %d bytes, and %d bytes in memory", n, size, most)
	}
	runtime.KeepAlive(w)
}

// damageLast flips a byte in the last frame of a kind of a mirror that is not the end of a segment.
func damageLast(t *testing.T, path string, kind byte, number uint32) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	found := int64(0)
	for at := int64(format.HeadSize); at < int64(len(content)); {
		f, next, good := format.ParseFrame(content[at:], 1, at)
		if next == 0 {
			t.Fatalf("no frame at %d", at)
		}
		if good && f.Kind == kind && f.Number == number && next < int64(len(content)) {
			found = at
		}
		at = next
	}
	content[found+format.FrameSize]++
	must(t, os.WriteFile(path, content, 0o600))
}

// TestHistory_damagedFrame damages a frame of one of two mirrors. Changes of the other one are not
// missing, unless it is not known of which mirror the frame is.
func TestHistory_damagedFrame(t *testing.T) {
	for _, indexed := range []int64{1 << 20, 700} { // the whole segment is read, or some of it
		path := t.TempDir()
		d := openDirectory(t, path, nil)
		d.limits.segment, d.limits.chunk, d.limits.minLog = 1<<30, 1<<20, 1<<30
		d.limits.indexed, d.limits.index = indexed, 1<<20
		var worlds []*world
		for i, resource := range []string{"configmaps", "pods"} {
			w := newWorld(t, openMirror(t, d, identify(resource), MirrorOptions{}), uint64(i))
			w.keys = 1
			w.fill(1)
			step(d)
			worlds = append(worlds, w)
		}
		for n := range 20 {
			if n == 17 {
				d.limits.indexed = 1 << 20 // the last frames are not indexed
			}
			for _, w := range []*world{worlds[1], worlds[0]} {
				w.change(1)
				step(d)
			}
		}
		must(t, d.Close()) // the process is killed
		c := newCluster(d, "east")
		everything := func() iter.Seq2[Entry, error] {
			return c.History(time.Time{}, func(Identity) bool { return true })
		}
		reads := map[string]func() iter.Seq2[Entry, error]{
			"two mirrors": everything,
			"one mirror": func() iter.Seq2[Entry, error] {
				return c.History(time.Time{}, func(id Identity) bool { return id == worlds[0].mirror.id })
			},
			"an object": func() iter.Seq2[Entry, error] {
				return c.ObjectHistory(worlds[0].mirror.id, "shop/item-0000", time.Time{}, time.Time{})
			},
		}
		want, errs := versionsOf(everything(), "configmaps")
		if len(want) < 10 || len(errs) > 0 {
			t.Fatalf("versions %v, errors %v", want, errs)
		}
		segment := filepath.Join(c.folder, format.SegmentName(1))
		damageLast(t, segment, format.BatchFrame, 2)
		for name, read := range reads {
			versions, errs := versionsOf(read(), "configmaps")
			if !slices.Equal(versions, want) || (name == "two mirrors") != (len(errs) == 1) {
				t.Errorf("indexed %d, %s: versions %v instead of %v, errors %v", indexed, name, versions, want, errs)
			}
		}
		damageLast(t, segment, format.MirrorFrame, 2)
		if _, errs := versionsOf(reads["one mirror"](), "configmaps"); len(errs) == 0 {
			t.Error("no error, and the declaration of a mirror is damaged")
		}
	}
}

// trimmed is a log of three mirrors: configmaps that change every minute, services that change in
// the first minutes only, and pods, with snapshots, that change in the first half of an hour.
type trimmed struct {
	d      *Directory
	worlds []*world
	now    time.Time
}

func newTrimmed(t *testing.T) *trimmed {
	t.Helper()
	h := &trimmed{now: time.Now().Add(-2 * time.Hour)}
	h.d = openDirectory(t, t.TempDir(), &Options{Window: time.Minute})
	h.d.limits.replay = 8 << 10
	for i, resource := range []string{"configmaps", "services", "pods"} {
		w := newWorld(t, openMirror(t, h.d, identify(resource), MirrorOptions{}), uint64(i))
		w.now, w.keys = func() time.Time { return h.now }, []int{3, 3, 60}[i]
		w.fill(w.keys)
		h.worlds = append(h.worlds, w)
	}
	for minute := range 60 {
		if h.pass(); minute < 5 {
			h.worlds[1].change(1)
		}
		if minute < 30 {
			h.worlds[2].change(10)
		}
	}
	return h
}

// pass writes what has been appended, and lets a minute pass.
func (h *trimmed) pass() {
	stepAt(h.d, h.now)
	h.now = h.now.Add(time.Minute)
	h.worlds[0].change(3)
}

// oldest returns the number of the oldest segment.
func (h *trimmed) oldest(t *testing.T) uint64 {
	t.Helper()
	all, err := format.List(h.d.Cluster("east").folder)
	must(t, err)
	return all.Segments[0]
}

// missing returns how many changes after a time are not in a history of a mirror, and its gaps.
func missing(t *testing.T, w *world, since time.Time, entries iter.Seq2[Entry, error]) (missing, gaps int) {
	t.Helper()
	versions, errs := versionsOf(entries, w.mirror.id.Resource)
	for _, err := range errs {
		if !errors.As(err, new(*GapError)) {
			t.Errorf("%s since %v: %v", w.mirror.id.Resource, since, err)
		}
	}
	for _, e := range w.events {
		if e.key != "" && e.time.After(since) && !slices.Contains(versions, e.batch) {
			missing++
		}
	}
	return missing, len(errs)
}

// TestHistory_removedSegments reads histories after old segments were removed, from many times on.
// A history has a gap if changes are missing, and none otherwise.
func TestHistory_removedSegments(t *testing.T) {
	h := newTrimmed(t)
	stepAt(h.d, h.now)
	c := h.d.Cluster("east")
	check := func(w *world) (complete, incomplete int) {
		id := w.mirror.id
		for i, p := range w.past {
			since := p.time
			if i > 0 && since.Equal(w.past[i-1].time) {
				continue
			}
			missing, gaps := missing(t, w, since, c.History(since, func(other Identity) bool { return other == id }))
			if gaps != min(missing, 1) {
				t.Errorf("%s since %v: %d gaps, %d changes are missing", id.Resource, since, gaps, missing)
			}
			if _, ofObject := versionsOf(c.ObjectHistory(id, "shop/item-0000", since, time.Time{}),
				""); len(ofObject) != gaps {
				t.Errorf("%s since %v: %d gaps, and those of an object are %v", id.Resource, since, gaps, ofObject)
			}
			if complete++; gaps > 0 {
				complete, incomplete = complete-1, incomplete+1
			}
		}
		return complete, incomplete
	}
	for _, w := range h.worlds {
		if complete, incomplete := check(w); incomplete > 0 || complete < 5 {
			t.Errorf("%s: %d histories have gaps before files are removed", w.mirror.id.Resource, incomplete)
		}
	}
	for range 10 { // the mirrors that do not change get complete states
		h.pass()
		h.d.maintain(h.now)
	}
	stepAt(h.d, h.now)
	if h.oldest(t) < 40 {
		t.Fatalf("the oldest segment is %d", h.oldest(t))
	}
	for _, w := range h.worlds {
		if complete, incomplete := check(w); complete == 0 || incomplete == 0 {
			t.Errorf("%s: %d histories are complete, %d not: hardly a test", w.mirror.id.Resource, complete, incomplete)
		}
		s, err := c.At(w.mirror.id, Moment{Time: h.now})
		must(t, err)
		must(t, w.truth.check(s))
	}
}

// TestHistory_holdsItsFiles does not remove old files while a history is read.
func TestHistory_holdsItsFiles(t *testing.T) {
	h := newTrimmed(t)
	for range 3 {
		h.pass()
		stepAt(h.d, h.now)
		before := h.oldest(t)
		for _, err := range h.d.Cluster("east").History(time.Time{}, func(Identity) bool { return true }) {
			if err != nil && !errors.As(err, new(*GapError)) {
				t.Error(err)
			}
			if h.d.maintain(h.now); h.oldest(t) != before {
				t.Fatalf("the oldest segment is %d and was %d", h.oldest(t), before)
			}
		}
		h.d.maintain(h.now)
	}
	if n := h.oldest(t); n == 1 {
		t.Error("no segment was removed")
	}
}
