// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/storage/format"
)

func TestVerify_andRemove(t *testing.T) {
	r := record(t, 5, 4, 8)
	report, err := Verify(r.path, r.opts.Keys)
	must(t, err)
	if len(report.Clusters) != 1 || report.Clusters[0].Name != "east" || len(report.Clusters[0].Mirrors) != 3 ||
		report.InUse {
		t.Fatalf("%+v", report)
	}
	c := report.Clusters[0]
	for _, m := range c.Mirrors {
		if m.Err != nil || m.Version != r.newest[m.Identity] || m.Time.IsZero() ||
			m.Objects != len(r.truths[m.Identity][m.Version]) {
			t.Errorf("%+v", m)
		}
	}
	if c.Err != nil || c.Bytes <= c.LogBytes || c.LogBytes == 0 || c.Since.IsZero() || report.Dictionaries != 1 ||
		report.DictionaryBytes == 0 {
		t.Errorf("%+v", report)
	}
	for name, content := range only(allFiles(t, r.path), format.SnapshotPrefix) {
		content[format.HeadSize+10]++
		must(t, os.WriteFile(name, content, 0o600))
	}
	d := openDirectory(t, r.path, nil)
	report, err = Verify(r.path, nil)
	must(t, err)
	failed := map[string]string{}
	for _, m := range report.Clusters[0].Mirrors {
		if m.Err != nil {
			failed[m.Identity.Resource] = m.Err.Error()
		}
	}
	if !report.InUse || len(failed) != 2 || !strings.Contains(failed["pods"], "damaged") ||
		!strings.Contains(failed["secrets"], "locked") {
		t.Errorf("in use %v, failed %v", report.InUse, failed)
	}
	m := openMirror(t, d, identify("pods"), MirrorOptions{})
	if err := d.Remove("east"); err == nil {
		t.Error("a cluster with an open mirror was removed")
	}
	m.Close()
	must(t, d.Remove("east"))
	if report, err = Verify(r.path, nil); err != nil || len(report.Clusters) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestVerify_window reports damage that costs no state.
func TestVerify_window(t *testing.T) {
	r := record(t, 12, 20, 14)
	files := allFiles(t, r.path)
	for _, name := range []string{format.SegmentName(1), format.SnapshotNames(format.DigestOf(identify("pods")))} {
		for path, content := range only(files, name) {
			damaged := bytes.Clone(content)
			damaged[len(damaged)/3]++
			must(t, os.WriteFile(path, damaged, 0o600))
			report, err := Verify(r.path, r.opts.Keys)
			must(t, err)
			c := report.Clusters[0]
			if c.Err == nil || !strings.Contains(c.Err.Error(), filepath.Base(path)) {
				t.Errorf("damage in %s: %v", filepath.Base(path), c.Err)
			}
			for _, m := range c.Mirrors {
				if m.Err != nil || m.Version != r.newest[m.Identity] {
					t.Errorf("damage in %s: %+v", filepath.Base(path), m)
				}
			}
			must(t, os.WriteFile(path, content, 0o600))
		}
	}
}

// TestVerify_index counts damaged index frames, which cost no data.
func TestVerify_index(t *testing.T) {
	r := record(t, 12, 20, 14)
	want := 0
	for path, content := range only(allFiles(t, r.path), format.SegmentPrefix) {
		var number uint64
		_, err := fmt.Sscanf(filepath.Base(path), format.SegmentPrefix+"%x", &number)
		must(t, err)
		for offset := int64(format.HeadSize); offset < int64(len(content)); {
			f, next, good := format.ParseFrame(content[offset:], number, offset)
			if !good {
				t.Fatalf("%s: the frame at %d is not good", path, offset)
			}
			if offset = next; f.Kind == format.IndexFrame {
				f.Payload[len(f.Payload)/2]++ // it is a part of content
				want++
			}
		}
		must(t, os.WriteFile(path, content, 0o600))
	}
	report, err := Verify(r.path, r.opts.Keys)
	must(t, err)
	c := report.Clusters[0]
	if c.Err != nil || want < 3 || c.DamagedIndexes != want {
		t.Errorf("%d damaged index frames, want %d: %v", c.DamagedIndexes, want, c.Err)
	}
	for _, m := range c.Mirrors {
		if m.Err != nil || m.Version != r.newest[m.Identity] {
			t.Errorf("%+v", m)
		}
	}
}

// TestHistory_everyChange compares the history with the changes of all mirrors.
func TestHistory_everyChange(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	var worlds []*world
	for i, resource := range []string{"pods", "services", "configmaps"} {
		w := newWorld(t, openMirror(t, d, identify(resource), MirrorOptions{}), uint64(i))
		w.fill(5 + 30*i)
		worlds = append(worlds, w)
	}
	step(d)
	step(d)
	start := map[Identity]map[string]string{}
	for _, w := range worlds {
		start[w.mirror.id] = w.truth[w.version]
	}
	middle := time.Now()
	for range 60 {
		for _, w := range worlds {
			w.random()
			step(d)
		}
	}
	c := d.Cluster("east")
	wanted := func(id Identity) bool { return id.Resource != "services" }
	records, managers := 0, 0
	for e, err := range c.History(middle, wanted) {
		must(t, err)
		records++
		now := start[e.Identity]
		for _, change := range e.Changes {
			if change.Manager == "kubelet" {
				managers++
			}
			if change.Type == delta.Deleted {
				delete(now, change.Key)
			} else {
				now[change.Key] = string(change.Object.Bytes())
			}
		}
	}
	for _, w := range worlds {
		err := truth{w.version: start[w.mirror.id]}.same(w.truth[w.version], w.version)
		if (err == nil) != wanted(w.mirror.id) {
			t.Errorf("%v: %v", w.mirror.id, err)
		}
	}
	if records < 80 || managers < 80 {
		t.Errorf("%d records, %d changes with a manager", records, managers)
	}
	for range c.History(time.Now(), wanted) {
		t.Error("there is history after now")
	}
	finish(t, d)
	for name, content := range only(allFiles(t, path), format.SegmentName(3)) {
		content[len(content)/2]++
		must(t, os.WriteFile(name, content, 0o600))
	}
	failures := 0
	for _, err := range c.History(middle, wanted) {
		if err != nil {
			failures++
		}
	}
	if failures == 0 {
		t.Error("damage was not reported")
	}
}
