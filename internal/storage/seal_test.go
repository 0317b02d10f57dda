// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"bytes"
	"encoding/base64"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/reader"
)

// testKeys returns a key.
func testKeys(tb testing.TB) format.LocalKeys { return keysOf(tb, 7) }

// keysOf returns the key that begins with a byte.
func keysOf(tb testing.TB, first byte) format.LocalKeys {
	tb.Helper()
	key := append([]byte{first}, make([]byte, 31)...)
	keys, err := format.ParseKeys("test", []byte(base64.StdEncoding.EncodeToString(key)))
	must(tb, err)
	return keys.(format.LocalKeys)
}

// TestSeal_secrets stores an encrypted and packed mirror, small and large. Nothing of its
// objects may be in a file, and without the key nothing is stored or loaded.
func TestSeal_secrets(t *testing.T) {
	for name, size := range map[string]int{"log": 2, "snapshot": 30} {
		t.Run(name, func(t *testing.T) {
			path, id := t.TempDir(), identify("secrets")
			opts, mirror := &Options{Keys: testKeys(t)}, MirrorOptions{Packer: trainedPacker(t)}
			d := openDirectory(t, path, opts)
			d.limits.chunk = 4 << 10
			w := newWorld(t, openMirror(t, d, id, mirror), 1)
			w.keys, w.body = size, 200
			w.fill(size)
			for range 20 {
				step(d)
				w.change(2)
			}
			step(d)
			finish(t, d)
			checkSealed(t, path, w)

			s, err := load(t, path, id, opts, mirror)
			must(t, err)
			must(t, w.truth.check(s))
			packed := 0
			for _, o := range s.Objects {
				if o.Packed() {
					packed++
				}
			}
			if s.Version != w.version || packed == 0 {
				t.Errorf("version %d of %d, %d packed objects", s.Version, w.version, packed)
			}
			other := keysOf(t, 0)
			for _, keys := range []format.Keys{nil, other} {
				_, err := load(t, path, id, &Options{Keys: keys}, mirror)
				if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Locked {
					t.Errorf("with the keys %v: %v", keys, err)
				}
			}
			both := append(append(format.LocalKeys{}, other...), testKeys(t)...)
			if _, err := load(t, path, id, &Options{Keys: both}, mirror); err != nil {
				t.Errorf("with a second key: %v", err)
			}
		})
	}
}

// checkSealed fails if a file contains a part of an object, or a dictionary.
func checkSealed(t *testing.T, path string, w *world) {
	t.Helper()
	files := allFiles(t, path)
	if len(only(files, format.SealedSuffix)) == 0 {
		t.Error("there is no encrypted dictionary")
	}
	for name, content := range files {
		if strings.Contains(name, dictionariesFolder) && !strings.HasSuffix(name, format.SealedSuffix) {
			t.Errorf("%s is not encrypted", name)
		}
		for _, text := range []string{`"data"`, "sample-", "apiVersion", "labels"} {
			if bytes.Contains(content, []byte(text)) {
				t.Errorf("%s contains %s", filepath.Base(name), text)
			}
		}
		for _, o := range w.store.All() {
			raw := o.Bytes()
			if bytes.Contains(content, raw[len(raw)-20:]) {
				t.Errorf("%s contains the end of %v", filepath.Base(name), o)
			}
		}
	}
}

// TestSeal_withoutKey does not store a mirror that is to be encrypted.
func TestSeal_withoutKey(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	m := openMirror(t, d, identify("secrets"), MirrorOptions{})
	_, err := m.Load(0)
	if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != reader.Locked {
		t.Errorf("load: %v", err)
	}
	w := newWorld(t, m, 1)
	w.fill(20)
	w.change(5)
	step(d)
	finish(t, d)
	if files := allFiles(t, path); len(files) != 2 {
		t.Errorf("files %v", slices.Collect(maps.Keys(files)))
	}
}

// TestSeal_keyRemoved opens secrets without the key that they were stored with: their files are
// removed with the past, and not before.
func TestSeal_keyRemoved(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, &Options{Keys: testKeys(t)})
	w := newWorld(t, openMirror(t, d, identify("secrets"), MirrorOptions{}), 1)
	w.body = 400
	w.fill(60)
	step(d)
	finish(t, d)
	d = openDirectory(t, path, &Options{Window: time.Hour})
	openMirror(t, d, identify("secrets"), MirrorOptions{})
	other := newWorld(t, openMirror(t, d, identify("configmaps"), MirrorOptions{}), 2)
	other.fill(10)
	write := func() {
		for range 30 {
			other.change(5)
			step(d)
		}
	}
	snapshots := func() int {
		return len(only(allFiles(t, path), format.SnapshotNames(format.DigestOf(identify("secrets")))))
	}
	write()
	if d.maintain(time.Now()); snapshots() != 1 {
		t.Errorf("%d snapshots of secrets within the window", snapshots())
	}
	for range 3 {
		write()
		d.maintain(time.Now().Add(100 * 24 * time.Hour))
	}
	if snapshots() != 0 {
		t.Errorf("%d snapshots of secrets after the window", snapshots())
	}
}
