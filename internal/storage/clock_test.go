// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// TestClock_steps reads a clock that is set forward and back.
func TestClock_steps(t *testing.T) {
	start := time.Date(2026, 11, 18, 9, 0, 0, 0, time.UTC)
	c := clock{start: start, time: start}
	for _, s := range []struct {
		what                  string
		elapsed, machine, log time.Duration // since start
	}{
		{"it runs", 10 * time.Second, 10 * time.Second, 10 * time.Second},
		{"nothing reads it for a while", 2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
		{
			"it is corrected by seconds", 2*time.Hour + time.Second, 2*time.Hour + 30*time.Second,
			2*time.Hour + 30*time.Second,
		},
		{"it is a day ahead", 2*time.Hour + time.Minute, 26 * time.Hour, 2*time.Hour + 89*time.Second},
		{"it is right again", 2*time.Hour + 2*time.Minute, 2*time.Hour + 2*time.Minute, 2*time.Hour + 2*time.Minute},
		{"it is an hour ahead", 3 * time.Hour, 4 * time.Hour, 3 * time.Hour},
		{"it stays so", 3*time.Hour + 4*time.Minute, 4*time.Hour + 4*time.Minute, 3*time.Hour + 4*time.Minute},
		{"it is believed", 3*time.Hour + 5*time.Minute, 4*time.Hour + 5*time.Minute, 4*time.Hour + 5*time.Minute},
		{"it is set back", 3*time.Hour + 6*time.Minute, 3*time.Hour + 6*time.Minute, 4*time.Hour + 5*time.Minute},
		{"it is reached", 4*time.Hour + 6*time.Minute, 4*time.Hour + 6*time.Minute, 4*time.Hour + 6*time.Minute},
	} {
		if got := c.advanceLocked(start.Add(s.machine), s.elapsed); !got.Equal(start.Add(s.log)) {
			t.Errorf("%s: %v instead of %v", s.what, got.Sub(start), s.log)
		}
	}
}

// TestPast_clockSetBack writes while the clock is set back, and in a process that begins with
// a clock that is behind the files. Times do not go back, and the state of now is the newest.
func TestPast_clockSetBack(t *testing.T) {
	path := t.TempDir()
	at := time.Now().Add(time.Hour)
	var w *world
	for process := range 2 {
		d := openDirectory(t, path, &Options{Window: 24 * time.Hour})
		m := openMirror(t, d, identify("configmaps"), MirrorOptions{})
		if w == nil {
			w = newWorld(t, m, 1)
			w.keys, w.now = 4, func() time.Time { return at }
			w.fill(4)
		} else {
			s, err := m.Load(1 << 20)
			must(t, err)
			w.mirror = m
			w.resume(s)
		}
		step(d)
		for range 30 {
			w.change(2)
			step(d)
			at = at.Add(-5 * time.Minute)
		}
		c, last, n := d.Cluster("east"), time.Time{}, 0
		for e, err := range c.History(time.Time{}, func(Identity) bool { return true }) {
			must(t, err)
			if e.Time.Before(last) {
				t.Fatalf("process %d: %v follows %v", process, e.Time, last)
			}
			last = e.Time
			n++
		}
		s, err := c.At(w.mirror.id, Moment{Time: time.Now()})
		must(t, err)
		if s.Version != w.version || n < 20*(process+1) {
			t.Errorf("process %d: version %d instead of %d, %d records", process, s.Version, w.version, n)
		}
		finish(t, d)
	}
}

// TestRetention_clockAfterAStart removes nothing of the past while the clock may still be
// wrong after a start.
func TestRetention_clockAfterAStart(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, &Options{Window: time.Hour})
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.fill(20)
	for range 60 {
		w.change(3)
		step(d)
	}
	before := len(only(allFiles(t, path), format.SegmentPrefix))
	d.settling = true
	d.maintain(time.Now().Add(24 * time.Hour))
	if n := len(only(allFiles(t, path), format.SegmentPrefix)); n != before {
		t.Errorf("%d of %d segments are left", n, before)
	}
	d.settling = false
	d.maintain(time.Now().Add(24 * time.Hour))
	if n := len(only(allFiles(t, path), format.SegmentPrefix)); n >= before {
		t.Errorf("%d of %d segments are left when the clock is believed", n, before)
	}
	finish(t, d)
}
