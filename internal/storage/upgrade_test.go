// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
)

var recordFormat = flag.Bool("record-format", false, "record the testdata of the newest format anew")

const statesFile = "states.json"

// recordings are the folders of recorded files, the oldest format first. Those of format 2 without
// packed objects were written before logs had an index.
var recordings = []string{"format-1", "format-2", "format-2-packed", "format-3"}

// recordedState is a state of a recorded mirror. Its objects have a version and a text.
type recordedState struct {
	Version uint64
	Time    time.Time
	Objects map[string]recordedObject
}

type recordedObject struct {
	Version uint64
	Text    string
}

// objects returns the objects by key.
func (s *recordedState) objects(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for key, o := range s.Objects {
		all[key] = string(newObject(t, key, o.Version, o.Text).Bytes())
	}
	return all
}

// parseState returns the recorded form of a state.
func parseState(t *testing.T, p pastState) recordedState {
	t.Helper()
	s := recordedState{p.version, p.time, map[string]recordedObject{}}
	for key, text := range p.objects {
		var o struct {
			Metadata struct {
				ResourceVersion uint64 `json:",string"`
			}
			Data struct{ Text string }
		}
		must(t, json.Unmarshal([]byte(text), &o))
		s.Objects[key] = recordedObject{o.Metadata.ResourceVersion, o.Data.Text}
	}
	return s
}

// TestFormat_recorded loads the recorded files of each format: one cluster with configmaps in
// the log, pods with snapshots and encrypted secrets, each with changes, a deletion and a
// relist. Every later version must load them, read their past, and continue them.
func TestFormat_recorded(t *testing.T) {
	if *recordFormat {
		recordFiles(t, filepath.Join("testdata", recordings[len(recordings)-1]))
	}
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) { testRecorded(t, filepath.Join("testdata", name)) })
	}
}

func testRecorded(t *testing.T, formatFolder string) {
	path := filepath.Join(t.TempDir(), "data")
	must(t, os.CopyFS(path, os.DirFS(filepath.Join(formatFolder, "data"))))
	text, err := os.ReadFile(filepath.Join(formatFolder, statesFile))
	must(t, err)
	var recorded map[string][]recordedState
	must(t, json.Unmarshal(text, &recorded))
	if size := sizeOf(t, formatFolder, ""); size > 200<<10 || len(recorded) != 3 {
		t.Errorf("%d mirrors in %d bytes", len(recorded), size)
	}
	opts := &Options{Keys: testKeys(t)}
	d := openDirectory(t, path, opts)
	var a answers
	differences := 0
	var worlds []*world
	for resource, states := range recorded {
		id, known := identify(resource), truth{}
		var past []pastState
		for _, s := range states {
			known[s.Version] = s.objects(t)
			past = append(past, pastState{version: s.Version, time: s.Time, objects: known[s.Version]})
		}
		for _, m := range moments(past) {
			must(t, a.at(d.Cluster("east"), id, past, m))
		}
		w := newWorld(t, openMirror(t, d, id, MirrorOptions{}), 1)
		s, err := w.mirror.Load(1 << 20)
		must(t, err)
		must(t, known.check(s))
		if newest := states[len(states)-1]; s.Version != newest.Version || !s.Time.Equal(newest.Time) ||
			len(s.Records) != len(states)-1 {
			t.Errorf("%s: version %d of %v with %d records", resource, s.Version, s.Time, len(s.Records))
		}
		for _, r := range s.Records {
			for _, c := range r.Changes {
				if b := c.Object.Cell().Body.Load(); b.How != nil && b.How.Base() != nil {
					differences++
				}
			}
		}
		w.truth, w.version, w.past = known, s.Version, past
		w.resume(s)
		worlds = append(worlds, w)
	}
	if (differences > 0) != strings.HasSuffix(formatFolder, "format-3") {
		t.Errorf("%d objects are stored as differences", differences)
	}
	for _, w := range worlds {
		w.change(3)
	}
	step(d)
	if version, err := checkFormat(path); err != nil || version != format.Version {
		t.Errorf("the directory has format %d, %v", version, err)
	}
	if _, gaps := readHistory(t, d.Cluster("east"), time.Time{}); len(gaps) > 0 {
		t.Errorf("gaps %v", gaps)
	}
	if a.exact < 3*12 || a.rejected+a.atEnd > 0 || a.tooOld != 3*2 {
		t.Errorf("%+v", a)
	}
	finish(t, d)
	for _, w := range worlds {
		s, err := load(t, path, w.mirror.id, opts, MirrorOptions{})
		must(t, err)
		must(t, w.truth.check(s))
		if s.Version != w.version {
			t.Errorf("%v: version %d instead of %d", w.mirror.id, s.Version, w.version)
		}
	}
}

// recordFiles records a mirror in the log, one with snapshots and one that is encrypted. The objects
// of the last two are packed.
func recordFiles(t *testing.T, formatFolder string) {
	t.Helper()
	must(t, os.RemoveAll(formatFolder))
	d := openDirectory(t, filepath.Join(formatFolder, "data"), &Options{Keys: testKeys(t)})
	d.limits.segment = 3 << 10
	packer := trainedPacker(t)
	all := map[string][]recordedState{}
	var worlds []*world
	for i, resource := range []string{"configmaps", "pods", "secrets"} {
		mirror := MirrorOptions{}
		if resource != "configmaps" {
			mirror.Packer = packer
		}
		w := newWorld(t, openMirror(t, d, identify(resource), mirror), uint64(i))
		w.keys, w.body = 2, 4
		if mirror.Packer != nil {
			w.body = 150
		}
		if resource == "pods" {
			w.keys = 8
		}
		w.fill(w.keys)
		step(d)
		worlds = append(worlds, w)
	}
	for n := range 4 {
		for _, w := range worlds {
			if n == 2 {
				w.relist(2, true)
				w.want()
			}
			w.change(1)
			step(d)
		}
	}
	finish(t, d)
	for _, w := range worlds {
		for _, p := range w.past {
			all[w.mirror.id.Resource] = append(all[w.mirror.id.Resource], parseState(t, p))
		}
	}
	text, err := json.Marshal(all)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(formatFolder, statesFile), text, 0o600))
}
