// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// readHistory returns the versions of the changes of a cluster since a time, and the gaps
// between them.
func readHistory(t *testing.T, c *Cluster, since time.Time) (versions []uint64, gaps []GapError) {
	t.Helper()
	for e, err := range c.History(since, func(Identity) bool { return true }) {
		gap := (*GapError)(nil)
		switch {
		case errors.As(err, &gap):
			gaps = append(gaps, *gap)
			versions = append(versions, 0)
		case err != nil:
			t.Fatal(err)
		default:
			versions = append(versions, e.Version)
		}
	}
	return versions, gaps
}

// TestHistory_droppedBatches yields a gap with its bounds where batches were dropped, also if
// the read begins after the last batch before the gap.
func TestHistory_droppedBatches(t *testing.T) {
	d := openDirectory(t, t.TempDir(), &Options{Window: time.Hour})
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.now, w.keys = func() time.Time { return at }, 4
	change := func() uint64 {
		at = at.Add(time.Second)
		w.change(1)
		return w.version
	}
	w.fill(4)
	step(d)
	before, since := change(), at
	step(d)
	for range 20 {
		change()
	}
	d.ledger.drop(w.mirror, nil, time.Time{})
	lost, until := w.version, at
	step(d)
	after := change()
	step(d)
	finish(t, d)
	c := d.Cluster("east")
	for _, from := range []time.Time{{}, since.Add(time.Second)} {
		versions, gaps := readHistory(t, c, from)
		want := []uint64{before, 0, after}
		if !from.IsZero() {
			want = want[1:]
		}
		if len(versions) != len(want) || versions[len(versions)-1] != after || versions[len(versions)-2] != 0 ||
			len(gaps) != 1 {
			t.Fatalf("versions %v instead of %v, gaps %v", versions, want, gaps)
		}
		if g := gaps[0]; g.After != before || g.Version != lost || !g.Since.Equal(since) || !g.Until.Equal(until) ||
			g.Identity != w.mirror.id {
			t.Errorf("gap %+v instead of versions %d to %d, %v to %v", g, before, lost, since, until)
		}
	}
	if versions, gaps := readHistory(t, c, until); len(gaps) > 0 || len(versions) != 1 {
		t.Errorf("versions %v and gaps %v after the gap", versions, gaps)
	}
}

// TestHistory_gapInALaterSegment yields the gap of a declaration in a segment before which no
// segment is read.
func TestHistory_gapInALaterSegment(t *testing.T) {
	d := openDirectory(t, t.TempDir(), &Options{Window: time.Hour})
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.fill(4)
	step(d)
	c := d.Cluster("east")
	must(t, c.log.finish(c))
	since := time.Now()
	w.change(1)
	d.ledger.drop(w.mirror, nil, time.Time{})
	step(d)
	w.change(1)
	step(d)
	if _, gaps := readHistory(t, c, since); len(gaps) != 1 {
		t.Errorf("%d gaps", len(gaps))
	}
	finish(t, d)
}

// TestHistory_noGap yields no gap for a new mirror, a new segment, or a process that
// continues the stored state, and one for a process that begins anew.
func TestHistory_noGap(t *testing.T) {
	path := t.TempDir()
	var w *world
	for restart := range 4 {
		d := openDirectory(t, path, nil)
		m := openMirror(t, d, identify("configmaps"), MirrorOptions{})
		switch {
		case w == nil:
			w = newWorld(t, m, 1)
			w.fill(4)
		case restart == 3: // it lists instead of loading
			w.mirror = m
			w.bookmark()
		default:
			w.mirror = m
			s, err := m.Load(1 << 20)
			must(t, err)
			w.resume(s)
		}
		step(d)
		for range 20 {
			w.change(2)
			step(d)
		}
		finish(t, d)
		want := max(0, restart-2)
		if versions, gaps := readHistory(t, d.Cluster("east"), time.Time{}); len(gaps) != want ||
			len(versions) < 15*(restart+1) {
			t.Errorf("restart %d: %d versions, gaps %v", restart, len(versions), gaps)
		}
	}
}

// TestLoad_restored returns the restore of the server from a backup with the state, in the
// next process and in the one after it.
func TestLoad_restored(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.fill(4)
	step(d)
	for range 3 {
		w.change(1)
	}
	step(d)
	last, former := w.version, w.past[len(w.past)-2].version
	w.goBack(103)
	step(d)
	for restart := range 3 {
		w.change(1)
		step(d)
		finish(t, d)
		d = openDirectory(t, path, nil)
		w.mirror = openMirror(t, d, identify("configmaps"), MirrorOptions{})
		s, err := w.mirror.Load(1 << 20)
		must(t, err)
		must(t, w.truth.check(s))
		switch r := s.Restored; {
		case r == nil || r.Version != last:
			t.Fatalf("restart %d: %+v instead of version %d", restart, r, last)
		case !slices.Contains(r.Former, former) || !slices.Contains(r.Former, last):
			t.Errorf("restart %d: %v lacks %d or %d", restart, r.Former, former, last)
		}
		w.resume(s)
	}
	finish(t, d)
}
