// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"cmp"
	"errors"
	"fmt"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/wire"
)

// recording is a directory with a log and snapshots, and the states that were true.
type recording struct {
	path   string
	truths map[Identity]truth
	pasts  map[Identity][]pastState
	newest map[Identity]uint64
	opts   *Options
	mirror map[Identity]MirrorOptions
	// checks counts the checks, and answers what At has returned.
	checks  int
	answers answers
}

// record records three mirrors: one in the log only, one with snapshots, and one that is
// encrypted and packed. Each has two complete states. Batches of the mirrors alternate.
func record(t *testing.T, seed uint64, rounds, size int) *recording {
	t.Helper()
	r := &recording{
		path:   t.TempDir(),
		truths: map[Identity]truth{},
		pasts:  map[Identity][]pastState{},
		newest: map[Identity]uint64{},
		opts:   &Options{Keys: testKeys(t)},
		mirror: map[Identity]MirrorOptions{},
	}
	d := openDirectory(t, r.path, r.opts)
	d.limits.chunk = 2 << 10
	d.limits.minLog = 1 << 20   // the log is recorded from the beginning,
	d.limits.replay = 128 << 10 // and read from there
	var worlds []*world
	for i, resource := range []string{"configmaps", "pods", "secrets"} {
		id := identify(resource)
		r.mirror[id] = MirrorOptions{}
		if resource == "secrets" {
			r.mirror[id] = MirrorOptions{Packer: trainedPacker(t)}
		}
		w := newWorld(t, openMirror(t, d, id, r.mirror[id]), seed+uint64(i))
		w.keys, w.body = 3, 20
		switch resource {
		case "pods":
			w.keys = size
		case "secrets":
			w.body = 150
		}
		w.fill(w.keys)
		worlds = append(worlds, w)
	}
	step(d)
	step(d)
	for n := range rounds {
		for _, w := range worlds {
			if n == rounds/2 {
				w.want()
			}
			w.random()
			step(d)
		}
	}
	for _, w := range worlds {
		if st := w.mirror.Status(); st.Behind || st.Err != nil {
			t.Fatalf("%v: %+v", w.mirror.id, st)
		}
		r.truths[w.mirror.id], r.newest[w.mirror.id], r.pasts[w.mirror.id] = w.truth, w.version, w.past
	}
	finish(t, d)
	return r
}

// trainedPacker returns a packer that has a dictionary for the objects of tests.
func trainedPacker(tb testing.TB) *objectpack.Packer {
	tb.Helper()
	p := objectpack.NewPacker(0)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 500 {
		o := newObject(tb, fmt.Sprintf("shop/sample-%d", i), uint64(i+1), fmt.Sprintf("%0200d", r.Int()))
		p.Pack(o, nil)
	}
	if o := newObject(tb, "shop/sample", 1, fmt.Sprintf("%0200d", 1)); p.Stored(o, nil).How == nil {
		tb.Fatal("there is no dictionary")
	}
	return p
}

// verdict is how many mirrors opened at their newest state, at an older one, or not.
type verdict struct{ newest, older, rejected int }

// check loads all mirrors, and reads a state of the past of each. A state that was not true
// fails the test.
func (r *recording) check(t *testing.T, what string) (v verdict) {
	t.Helper()
	d, err := Open(r.path, *cmp.Or(r.opts, &Options{}))
	if err != nil {
		return verdict{rejected: len(r.truths)}
	}
	defer d.Close()
	r.checks++
	for id, truth := range r.truths {
		p := r.pasts[id][r.checks/2%len(r.pasts[id])]
		for _, m := range []Moment{{Version: p.version}, {Time: p.time}}[r.checks%2:][:1] {
			if err := r.answers.at(d.Cluster("east"), id, r.pasts[id], m); err != nil {
				t.Errorf("%s: %v at %v: %v", what, id, m, err)
			}
		}
		m, err := d.Cluster("east").Mirror(id, r.mirror[id])
		must(t, err)
		s, err := m.Load(1 << 20)
		rejected := (*Rejection)(nil)
		switch {
		case errors.As(err, &rejected):
			v.rejected++
			continue
		case err != nil:
			t.Fatalf("%s: %v is not a rejection", what, err)
		case s.Version == r.newest[id]:
			v.newest++
		default:
			v.older++
		}
		if err := truth.check(s); err != nil {
			t.Errorf("%s: %v: %v", what, id, err)
		}
	}
	return v
}

// TestDamage_everyByte flips every byte and cuts at every byte of every file.
func TestDamage_everyByte(t *testing.T) {
	r := record(t, 11, 2, 14)
	if v := r.check(t, "undamaged"); v.newest != 3 {
		t.Fatalf("undamaged: %+v", v)
	}
	files := allFiles(t, r.path)
	if n := len(only(files, format.SnapshotPrefix)); n != 2 {
		t.Fatalf("%d snapshots", n)
	}
	for _, kind := range []string{format.SegmentPrefix, format.SnapshotPrefix, formatFile, format.SealedSuffix} {
		var flips, cuts verdict
		bytes, every := 0, 1
		switch {
		case kind == format.SealedSuffix: // it is encrypted as a whole
			every = 997
		case testing.Short() && kind != formatFile:
			every = 61
		}
		for name, content := range only(files, kind) {
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			must(t, err)
			put := func(at int, b byte) {
				_, err := f.WriteAt([]byte{b}, int64(at))
				must(t, err)
			}
			// From the end, because files are shortened fast.
			for at := (len(content) - 1) / every * every; at >= 0; at -= every {
				bytes++
				put(at, content[at]^byte(1+at%255))
				flips.add(r.check(t, fmt.Sprintf("flip of byte %d of %s", at, filepath.Base(name))))
				put(at, content[at])
			}
			for at := (len(content) - 1) / every * every; at >= 0; at -= every {
				must(t, f.Truncate(int64(at)))
				cuts.add(r.check(t, fmt.Sprintf("first %d bytes of %s", at, filepath.Base(name))))
			}
			must(t, f.Close())
			must(t, os.WriteFile(name, content, 0o600))
		}
		t.Logf("%s: %d bytes, flips %+v, cuts %+v", kind, bytes, flips, cuts)
		if bytes == 0 || flips.rejected == 0 && kind != format.SnapshotPrefix ||
			flips.newest+flips.older == 0 && kind != formatFile {
			t.Errorf("%s: hardly a test", kind)
		}
		if kind == format.SnapshotPrefix && flips.newest+cuts.newest != 6*bytes {
			t.Errorf("damage in one of two snapshots must not cost a state")
		}
	}
	if v := r.check(t, "repaired"); v.newest != 3 {
		t.Errorf("repaired: %+v", v)
	}
	t.Logf("At: %+v", r.answers)
	if a := r.answers; a.exact < r.checks || a.rejected == 0 || a.tooOld == 0 {
		t.Errorf("At: %+v: hardly a test", a)
	}
}

func (v *verdict) add(other verdict) {
	v.newest += other.newest
	v.older += other.older
	v.rejected += other.rejected
}

// TestDamage_missingFiles removes each file.
func TestDamage_missingFiles(t *testing.T) {
	r := record(t, 12, 20, 14)
	files := allFiles(t, r.path)
	if segments := len(only(files, format.SegmentPrefix)); segments < 3 {
		t.Fatalf("%d segments", segments)
	}
	for name, content := range files {
		must(t, os.Remove(name))
		v := r.check(t, "without "+filepath.Base(name))
		t.Logf("without %s: %+v", filepath.Base(name), v)
		must(t, os.WriteFile(name, content, 0o600))
	}
}

// TestDamage_missingSegment removes each segment of a log in which a mirror begins late, so
// that no earlier segment names it.
func TestDamage_missingSegment(t *testing.T) {
	r := &recording{
		path:   t.TempDir(),
		truths: map[Identity]truth{},
		pasts:  map[Identity][]pastState{},
		newest: map[Identity]uint64{},
	}
	d := openDirectory(t, r.path, nil)
	d.limits.minLog = 1 << 20
	var worlds []*world
	for i, resource := range []string{"services", "pods"} {
		w := newWorld(t, openMirror(t, d, identify(resource), MirrorOptions{}), uint64(i))
		w.keys = 30 * (i + 1)
		w.fill(w.keys)
		worlds = append(worlds, w)
		for range 40 {
			for _, w := range worlds {
				w.change(1)
				step(d)
			}
		}
	}
	for _, w := range worlds {
		id := w.mirror.id
		r.truths[id], r.newest[id], r.pasts[id] = w.truth, w.version, w.past
	}
	finish(t, d)
	files := only(allFiles(t, r.path), format.SegmentPrefix)
	if len(files) < 5 {
		t.Fatalf("%d segments", len(files))
	}
	checks := 200
	if testing.Short() {
		checks = 30
	}
	for name, content := range files {
		must(t, os.Remove(name))
		for range checks {
			r.check(t, "without "+filepath.Base(name))
		}
		must(t, os.WriteFile(name, content, 0o600))
	}
	t.Logf("At: %+v", r.answers)
}

// TestDamage_snapshotNeverFinished drops batches of a mirror, and ends the process before
// the complete state is written that the next batches continue.
func TestDamage_snapshotNeverFinished(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	w := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 4)
	w.keys = 60
	w.fill(60)
	step(d)
	for range 3 {
		w.change(2)
		step(d)
		before := w.version
		d.ledger.drop(w.mirror, nil, time.Time{})
		w.change(5) // it is not written
		d.round(time.Now())
		if len(d.jobs) != 1 {
			t.Fatal("no snapshot is being written")
		}
		w.change(5)
		d.round(time.Now())
		if d.Stats().Batches < 2 {
			t.Fatal("the batches after it were not written")
		}
		finish(t, d)
		d = openDirectory(t, path, nil)
		w.mirror = openMirror(t, d, identify("pods"), MirrorOptions{})
		s, err := w.mirror.Load(1 << 20)
		must(t, err)
		must(t, w.truth.check(s))
		if s.Version != before {
			t.Fatalf("version %d instead of %d", s.Version, before)
		}
		w.resume(s)
	}
}

// TestDamage_resumedWithoutItsBase loses the end of the log, continues with a newer
// snapshot, and then loses the snapshot. The older state in the log must not be continued
// with the batches after the snapshot.
func TestDamage_resumedWithoutItsBase(t *testing.T) {
	path := t.TempDir()
	d := openDirectory(t, path, nil)
	d.limits.segment = 1 << 20
	w := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 4)
	w.fill(2)
	step(d)
	w.change(2)
	step(d)
	kept := d.Cluster("east").log.current.size
	w.keys = 60
	for len(only(allFiles(t, path), format.SnapshotPrefix)) == 0 {
		w.change(5)
		step(d)
	}
	stored := w.version
	finish(t, d)
	for name := range only(allFiles(t, path), format.SegmentPrefix) {
		must(t, os.Truncate(name, kept))
	}
	d = openDirectory(t, path, nil)
	w.mirror = openMirror(t, d, identify("pods"), MirrorOptions{})
	s, err := w.mirror.Load(1 << 20)
	must(t, err)
	must(t, w.truth.check(s))
	if s.Version != stored || len(s.Records) != 0 {
		t.Fatalf("version %d with %d records instead of %d", s.Version, len(s.Records), stored)
	}
	w.resume(s)
	w.change(3)
	d.round(time.Now())
	finish(t, d)
	for name, content := range only(allFiles(t, path), format.SnapshotPrefix) {
		must(t, os.WriteFile(name, content[:len(content)-1], 0o600))
	}
	s, err = load(t, path, identify("pods"), nil, MirrorOptions{})
	must(t, err)
	must(t, w.truth.check(s))
	if s.Version >= stored {
		t.Errorf("version %d", s.Version)
	}
}

// oneSegment returns a folder with 60 objects and two changes in one segment.
func oneSegment(t *testing.T, path string) (*Directory, *world) {
	t.Helper()
	d := openDirectory(t, path, nil)
	d.limits.segment, d.limits.minLog = 1<<20, 1<<20
	w := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 4)
	w.keys = 60
	w.fill(60)
	step(d)
	w.change(2)
	step(d)
	return d, w
}

// TestDamage_lostSegment loses a segment that a snapshot continues. The number of the
// segment must not be used again: the snapshot would seem to be after newer changes.
func TestDamage_lostSegment(t *testing.T) {
	path := t.TempDir()
	d, w := oneSegment(t, path)
	w.want()
	step(d)
	finish(t, d)
	for name := range only(allFiles(t, path), format.SegmentPrefix) {
		must(t, os.Truncate(name, 0))
	}
	d = openDirectory(t, path, nil)
	d.limits.segment, d.limits.minLog = 1<<20, 1<<20
	w.mirror = openMirror(t, d, identify("pods"), MirrorOptions{})
	s, err := w.mirror.Load(1 << 20)
	must(t, err)
	must(t, w.truth.check(s))
	w.resume(s)
	for range 40 {
		w.change(1)
		step(d)
	}
	finish(t, d)
	s, err = load(t, path, identify("pods"), nil, MirrorOptions{})
	if err == nil {
		err = w.truth.check(s)
	}
	if r := (*Rejection)(nil); err != nil && !errors.As(err, &r) {
		t.Error(err)
	}
}

// TestDamage_sameVersion cuts off a relist that has not changed the version. The log seems
// to lead to the snapshot after it, which has the same version.
func TestDamage_sameVersion(t *testing.T) {
	path := t.TempDir()
	d, w := oneSegment(t, path)
	kept := d.Cluster("east").log.current.size
	o := newObject(t, "shop/new", w.version, "x")
	w.append(Batch{
		Changes: w.store.Apply([]delta.Delta[*wire.Object]{
			{Type: delta.Replaced, Key: o.Key(), Object: o, Version: w.version},
		}),
		Listed: true,
	})
	w.remember()
	step(d)
	w.want()
	step(d)
	finish(t, d)
	for name := range only(allFiles(t, path), format.SegmentPrefix) {
		must(t, os.Truncate(name, kept))
	}
	s, err := load(t, path, identify("pods"), nil, MirrorOptions{})
	must(t, err)
	must(t, w.truth.check(s))
	if n := len(only(allFiles(t, path), format.SnapshotPrefix)); n != 2 || len(w.past) < 3 ||
		w.past[len(w.past)-2].version != s.Version {
		t.Errorf("%d snapshots, version %d", n, s.Version)
	}
}
