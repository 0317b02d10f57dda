// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/reader"
)

// storeChanges stores some objects in a new directory, and changes in several segments.
func storeChanges(t *testing.T, path string, objects int) *world {
	t.Helper()
	d := openDirectory(t, path, nil)
	w := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 1)
	w.keys = objects
	w.fill(objects)
	for range 60 {
		step(d)
		w.change(2)
	}
	step(d)
	finish(t, d)
	return w
}

// TestClose_returnsTheStoredState closes handles of a mirror that have appended nothing. The next
// handle loads the same state, and continues it without a gap.
func TestClose_returnsTheStoredState(t *testing.T) {
	for what, use := range map[string]func(*testing.T, *Directory, *Mirror){
		"loaded": func(t *testing.T, _ *Directory, m *Mirror) {
			_, err := m.Load(1 << 20)
			must(t, err)
		},
		"not loaded": func(*testing.T, *Directory, *Mirror) {},
		"dropped": func(t *testing.T, d *Directory, m *Mirror) {
			_, err := m.Load(1 << 20)
			must(t, err)
			d.ledger.drop(m, errors.New("another mirror could not be written"), time.Time{})
		},
		"older files removed": func(t *testing.T, d *Directory, m *Mirror) {
			_, err := m.Load(1 << 20)
			must(t, err)
			before := m.cluster.log.segments[0].number
			d.maintain(time.Now().Add(24 * time.Hour))
			if after := m.cluster.log.segments[0].number; before == 1 && after == before {
				t.Error("no file was removed")
			}
		},
	} {
		for _, objects := range []int{4, 60} { // in the log, and in a snapshot
			t.Run(fmt.Sprint(what, " ", objects), func(t *testing.T) {
				path := t.TempDir()
				w := storeChanges(t, path, objects)
				d := openDirectory(t, path, nil)
				c := d.Cluster("east")
				for n := range 4 {
					m := openMirror(t, d, identify("configmaps"), MirrorOptions{})
					if n < 3 {
						use(t, d, m)
						m.Close()
						m.Close()
						if is := d.Stats(); is.Behind != 0 || !c.Has(m.id) {
							t.Errorf("a closed handle waits to be written: %+v, stored: %v", is, c.Has(m.id))
						}
						continue
					}
					s, err := m.Load(1 << 20)
					must(t, err)
					must(t, w.truth.check(s))
					w.mirror = m
					w.resume(s)
				}
				w.change(2)
				step(d)
				if f := c.index.Mirrors[w.mirror.digest]; f.Frames != nil || len(c.entry.unclaimed) > 0 {
					t.Errorf("%d frames are kept after a change, %d mirrors unclaimed", len(f.Frames),
						len(c.entry.unclaimed))
				}
				w.mirror.Close()
				finish(t, d)
				versions, gaps := readHistory(t, c, time.Time{})
				// A gap without a beginning is for older files that were removed.
				gaps = slices.DeleteFunc(gaps, func(g GapError) bool { return g.Since.IsZero() })
				if len(versions) == 0 || len(gaps) > 0 {
					t.Errorf("versions %v, gaps %v", versions, gaps)
				}
				s, err := load(t, path, w.mirror.id, nil, MirrorOptions{})
				must(t, err)
				must(t, w.truth.check(s))
				if s.Version != w.version {
					t.Errorf("version %d instead of %d", s.Version, w.version)
				}
			})
		}
	}
}

// TestClose_afterAppend does not return the stored state: the files have another one.
func TestClose_afterAppend(t *testing.T) {
	path := t.TempDir()
	w := storeWorld(t, path, "configmaps", 1, 4)
	d := openDirectory(t, path, nil)
	w.mirror = openMirror(t, d, w.mirror.id, MirrorOptions{})
	s, err := w.mirror.Load(1 << 20)
	must(t, err)
	w.resume(s)
	w.change(1)
	w.mirror.Close()
	step(d)
	_, err = openMirror(t, d, w.mirror.id, MirrorOptions{}).Load(1 << 20)
	if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Absent {
		t.Errorf("%v instead of absent", err)
	}
	finish(t, d)
}
