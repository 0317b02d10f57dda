// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"fmt"
	"maps"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// damage damages the files at random: as a torn write would, or anyhow.
func damage(t *testing.T, path string, r *rand.Rand) string {
	t.Helper()
	files := allFiles(t, path)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool {
		return len(files[name]) == 0 || !strings.Contains(name, clustersFolder)
	})
	if len(names) == 0 {
		return "nothing"
	}
	// The last of three, because damage in newer files is more likely.
	name := names[max(r.IntN(len(names)), r.IntN(len(names)), r.IntN(len(names)))]
	content := files[name]
	at := r.IntN(len(content))
	what := fmt.Sprintf("%s of %d bytes at %d", filepath.Base(name), len(content), at)
	switch r.IntN(4) {
	case 0:
		content, what = content[:at], "cut "+what
	case 1:
		clear(content[at:])
		what = "zeros in " + what
	case 2:
		clear(content[at:min(len(content), at+512)])
		what = "a hole in " + what
	case 3:
		content[at] ^= byte(1 + r.IntN(255))
		what = "flip in " + what
	}
	must(t, os.WriteFile(name, content, 0o600))
	return what
}

// some reads the states of some moments.
func (a *answers) some(w *world, r *rand.Rand) error {
	all := moments(w.past)
	for range 10 {
		if err := a.at(w.mirror.cluster, w.mirror.id, w.past, all[r.IntN(len(all))]); err != nil {
			return err
		}
	}
	return nil
}

// TestDamage_random runs a mirror in many processes. Between them files are damaged, and
// each process continues with what it has loaded.
func TestDamage_random(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	runs := 60
	if testing.Short() {
		runs = 4
	}
	loaded, rejected := 0, 0
	var past answers
	for n := range runs {
		seed := seed + uint64(n)
		path := t.TempDir()
		r := rand.New(rand.NewPCG(seed, 9))
		w := newWorld(t, nil, seed)
		w.keys = 2 + r.IntN(60)
		for process := range 8 {
			what := "nothing"
			if process > 0 && r.IntN(3) > 0 {
				what = damage(t, path, r)
			}
			d := openDirectory(t, path, nil)
			w.mirror = openMirror(t, d, identify("configmaps"), MirrorOptions{})
			s, err := w.mirror.Load(1 << 20)
			if err == nil {
				loaded++
				if err := w.truth.check(s); err != nil {
					t.Fatalf("seed %d, process %d, %s: %v", seed, process, what, err)
				}
				if err := past.some(w, r); err != nil {
					t.Fatalf("seed %d, process %d, %s: %v", seed, process, what, err)
				}
				w.resume(s)
				w.bookmark()
			} else {
				rejected++
				w.reset()
				w.fill(w.keys)
			}
			for range r.IntN(40) {
				w.random()
				if r.IntN(3) > 0 {
					step(d)
				}
				if r.IntN(10) == 0 {
					maintain(d)
				}
			}
			must(t, d.Close()) // without finish: the process was killed
			for _, c := range d.ledger.openClusters() {
				c.exchange(nil)
			}
		}
	}
	t.Logf("seed %d: %d loaded, %d rejected, At %+v", seed, loaded, rejected, past)
	if loaded < runs || rejected < runs {
		t.Errorf("seed %d: hardly a test", seed)
	}
}
