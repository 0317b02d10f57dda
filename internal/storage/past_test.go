// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	rand "math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/storage/reader"
	"github.com/watershed-project/watershed/wire"
)

// answers counts the results of At.
type answers struct {
	exact, atEnd, tooOld, rejected, between int
	last                                    error // the last rejection
}

// lastOf returns the last state that is not after a moment, -1 if there is none.
func lastOf(past []pastState, m Moment) int {
	for i, p := range slices.Backward(past) {
		if m.Version != 0 && p.version <= m.Version || m.Version == 0 && !p.inner && !p.time.After(m.Time) {
			return i
		}
	}
	return -1
}

// is reports whether a state is this one.
func (p *pastState) is(s *State) bool {
	now := map[string]string{}
	for _, o := range s.Objects {
		now[o.Key()] = string(o.Bytes())
	}
	return s.Version == p.version && s.Time.Equal(p.time) && s.After == s.Version && s.Records == nil &&
		maps.Equal(now, p.objects)
}

// at reads the state of a moment and compares it with the states that the mirror had. It
// returns an error if the state is false. An older one is accepted only if it is the end
// of the log, because the rest may not be written or may be cut off.
func (a *answers) at(c *Cluster, id Identity, past []pastState, m Moment) error {
	s, err := c.At(id, m)
	tooOld, rejected := (*TooOldError)(nil), (*Rejection)(nil)
	want := lastOf(past, m)
	// The states of the server between a relist and the change before it are not known.
	between := m.Version != 0 && want >= 0 && past[want].version < m.Version && want+1 < len(past) &&
		past[want+1].relisted
	switch {
	case err == nil && between && !s.Last:
		return fmt.Errorf("%v: version %d, and the states between %d and %d are not known", m, s.Version,
			past[want].version, past[want+1].version)
	case errors.Is(err, reader.ErrBetween) && (want < 0 || past[want].version < m.Version):
		a.between++
		return nil
	case errors.As(err, &tooOld):
		a.tooOld++
		oldest := slices.IndexFunc(past, func(p pastState) bool {
			return p.version == tooOld.Version && p.time.Equal(tooOld.Time)
		})
		if oldest <= want && tooOld.Version <= past[len(past)-1].version {
			return fmt.Errorf("%v: %w, and state %d was wanted, which is not older than %d", m, err, want, oldest)
		}
		return nil
	case errors.As(err, &rejected):
		a.rejected++
		a.last = err
		return nil
	case err != nil:
		return err
	case want >= 0 && past[want].is(s):
		a.exact++
		return nil
	}
	end, err := c.At(id, Moment{Version: math.MaxUint64})
	if err != nil || end.Version != s.Version || !slices.ContainsFunc(past[:want+1], func(p pastState) bool {
		return p.is(s)
	}) {
		return fmt.Errorf("%v: version %d of %v with %d objects is not state %d of version %d", m, s.Version, s.Time,
			len(s.Objects), want, past[max(want, 0)].version)
	}
	a.atEnd++
	return nil
}

// moments returns the versions and times of states, and those just before.
func moments(past []pastState) (all []Moment) {
	for _, p := range past {
		all = append(all, Moment{Version: p.version}, Moment{Version: p.version - 1}, Moment{Time: p.time},
			Moment{Time: p.time.Add(-1)})
	}
	return all
}

// goBack appends a relist after which the server has an older version.
func (w *world) goBack(version uint64) {
	w.version, w.relisted = version, true
	o := newObject(w.tb, "shop/old", version-1, "x")
	changes := w.store.Apply([]delta.Delta[*wire.Object]{
		{Type: delta.Replaced, Missed: true, Key: o.Key(), Object: o, Version: version - 1},
	})
	w.put(Batch{Changes: changes, State: w.store.Snapshot(), Open: true, Time: w.now()})
	w.store.Apply([]delta.Delta[*wire.Object]{{Type: delta.Bookmark, Missed: true, Version: version}})
	w.remember()
	w.append(Batch{})
}

// want requests a complete state, as a long log would.
func (w *world) want() {
	d := w.mirror.cluster.directory
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	d.ledger.wantLocked(w.mirror)
}

// TestPast_random writes random histories in several processes, and reads each state by
// its version and by its time.
func TestPast_random(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	runs, reads := 24, math.MaxInt // how many histories, and how many states of each are read
	if testing.Short() {
		runs, reads = 2, 30
	}
	var complete, gaps answers
	records, before := 0, 0
	for n := range runs {
		seed := seed + uint64(n)
		r := rand.New(rand.NewPCG(seed, 5))
		path, drops := t.TempDir(), n%2 == 1
		w := newWorld(t, nil, seed)
		w.keys = 2 + n%4*20
		for process := range 4 {
			d := openDirectory(t, path, nil)
			w.mirror = openMirror(t, d, identify("configmaps"), MirrorOptions{})
			if s, err := w.mirror.Load(1 << 20); process > 0 {
				must(t, err)
				if err := w.truth.check(s); err != nil {
					t.Fatalf("seed %d, process %d: %v", seed, process, err)
				}
				records += len(s.Records)
				w.resume(s)
			} else {
				w.fill(w.keys)
				step(d)
			}
			w.history(d, r, drops)
			finish(t, d)
			a := &complete
			if drops {
				a = &gaps
			}
			some := w.past
			if process < 3 {
				some = some[max(0, len(some)-5):]
			}
			some = slices.Clone(some)
			r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			some = some[:min(len(some), reads)]
			for _, m := range moments(some) {
				if lastOf(w.past, m) < 0 {
					before++
				}
				if err := a.at(d.Cluster("east"), identify("configmaps"), w.past, m); err != nil {
					t.Fatalf("seed %d, process %d: %v", seed, process, err)
				}
			}
		}
	}
	t.Logf("%d records, complete logs %+v, logs with gaps %+v", records, complete, gaps)
	if complete.rejected+complete.atEnd > 0 || gaps.atEnd > 0 || complete.tooOld+gaps.tooOld != before {
		t.Errorf("complete logs %+v, logs with gaps %+v, %d moments before the first state", complete, gaps, before)
	}
	if testing.Short() {
		return // the histories are too few to have everything
	}
	if records < 5*runs || complete.exact < 50*runs || gaps.exact < 50*runs || gaps.rejected == 0 {
		t.Error("hardly a test")
	}
}

// history appends and writes at random.
func (w *world) history(d *Directory, r *rand.Rand, drops bool) {
	for range 10 + r.IntN(40) {
		switch n := r.IntN(30); {
		case n == 0:
			w.want()
		case n == 1 && !drops: // otherwise states with lower versions may be lost
			w.goBack(w.version - uint64(1+r.IntN(30)))
		case n == 2 && drops:
			d.ledger.drop(w.mirror, nil, time.Time{})
		case n == 3:
			maintain(d)
		}
		w.random()
		if r.IntN(3) > 0 {
			step(d)
		}
	}
	w.bookmark()
	step(d)
}

// behind reports whether much waits to be written.
func behind(d *Directory) bool {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	return d.ledger.queued > 16<<10
}

// TestPast_whileWriting reads the past of a directory that is being written and trimmed.
func TestPast_whileWriting(t *testing.T) {
	d := openDirectory(t, t.TempDir(), &Options{Window: 300 * time.Millisecond})
	stop := run(t, d)
	w := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 1)
	w.keys = 40
	var mu sync.Mutex
	var writing sync.WaitGroup
	done := make(chan struct{})
	w.fill(40)
	waitStored(t, w)
	writing.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				if behind(d) {
					continue // the machine is slow
				}
				mu.Lock()
				w.random()
				mu.Unlock()
			}
		}
	})
	var a answers
	r := rand.New(rand.NewPCG(1, 1))
	began := time.Now()
	for time.Since(began) < 1500*time.Millisecond || a.exact < 20 && time.Since(began) < time.Minute {
		mu.Lock()
		past := slices.Clone(w.past)
		mu.Unlock()
		p := past[len(past)-1-r.IntN(min(len(past), 400))]
		for _, m := range []Moment{{Version: p.version}, {Time: p.time}} {
			// Until the state is written, the end of the log moves.
			first := a.at(d.Cluster("east"), identify("pods"), past, m)
			if first == nil {
				continue
			}
			expect.Eventually(t, time.Minute, func() error {
				if err := a.at(d.Cluster("east"), identify("pods"), past, m); err != nil {
					return fmt.Errorf("%w, and at first: %w", err, first)
				}
				return nil
			})
		}
	}
	mu.Lock()
	past := slices.Clone(w.past)
	mu.Unlock()
	expect.Soon(t, "the first version is too old", func() bool {
		must(t, a.at(d.Cluster("east"), identify("pods"), past, Moment{Version: past[0].version}))
		return a.tooOld > 0
	})
	close(done)
	writing.Wait()
	stop()
	t.Logf("%+v of %d states", a, len(w.past))
	if a.exact < 20 || a.tooOld == 0 || a.rejected > 0 {
		t.Errorf("%+v, last rejection: %v", a, a.last)
	}
}

// TestPast_fileRemovedMeanwhile reads states while one file is gone or cannot be read for a
// moment: each of the files that a read opens, one after the other.
func TestPast_fileRemovedMeanwhile(t *testing.T) {
	path := t.TempDir()
	w := newWorld(t, nil, 3)
	w.keys = 10
	for range 3 {
		d := openDirectory(t, path, nil)
		w.mirror = openMirror(t, d, identify("pods"), MirrorOptions{})
		if s, err := w.mirror.Load(1 << 20); err == nil {
			w.resume(s)
		} else {
			w.fill(w.keys)
		}
		w.history(d, rand.New(rand.NewPCG(3, 3)), false)
		finish(t, d)
	}
	states := 12
	if testing.Short() {
		states = 2
	}
	d := openDirectory(t, path, nil)
	for _, failure := range []error{fs.ErrNotExist, syscall.EIO} {
		var a answers
		failures := 0
		for _, m := range moments(w.past[max(0, len(w.past)-states):]) {
			for n, failed := 1, true; failed; n++ {
				failed = false
				opened := 0
				d.files.Fault = func(operation, _ string, size int) (int, error) {
					if operation == "read" {
						opened++
					}
					if operation == "read" && opened == n {
						failed = true
						failures++
						return 0, &fs.PathError{Op: "open", Path: "file", Err: failure}
					}
					return size, nil
				}
				if err := a.at(d.Cluster("east"), identify("pods"), w.past, m); err != nil {
					t.Errorf("%v with a failure of file %d: %v", m, n, err)
				}
			}
		}
		d.files.Fault = nil
		t.Logf("%d times %v: %+v", failures, failure, a)
		if failures < 20*states || a.exact < 20*states || errors.Is(failure, fs.ErrNotExist) && a.rejected > 0 {
			t.Errorf("%d times %v: %+v, last rejection: %v", failures, failure, a, a.last)
		}
	}
}

// TestPast_absent reads mirrors and moments that are not stored.
func TestPast_absent(t *testing.T) {
	d := openDirectory(t, t.TempDir(), nil)
	check := func(id Identity, m Moment, want reader.Reason) {
		t.Helper()
		_, err := d.Cluster("east").At(id, m)
		if r := (*Rejection)(nil); !errors.As(err, &r) || r.Reason != want {
			t.Errorf("%v at %v: %v", id, m, err)
		}
	}
	check(identify("pods"), Moment{Version: 7}, reader.Absent)
	w := newWorld(t, openMirror(t, d, identify("pods"), MirrorOptions{}), 1)
	w.fill(3)
	step(d)
	check(identify("services"), Moment{Version: 7}, reader.Absent)
	_, err := d.Cluster("east").At(identify("pods"), Moment{Version: 7})
	if e := (*TooOldError)(nil); !errors.As(err, &e) || e.Version != w.version || !e.Time.Equal(w.past[0].time) {
		t.Errorf("%v", err)
	}
	d.ledger.drop(w.mirror, nil, time.Time{})
	w.change(2)
	w.change(2)
	step(d)
	check(identify("pods"), Moment{Version: w.past[1].version}, reader.Incomplete)
	check(identify("pods"), Moment{Time: w.past[1].time}, reader.Incomplete)
	var a answers
	must(t, a.at(d.Cluster("east"), identify("pods"), w.past, Moment{Version: w.past[0].version}))
	must(t, a.at(d.Cluster("east"), identify("pods"), w.past, Moment{Version: w.past[len(w.past)-1].version}))
	if a.exact != 2 {
		t.Errorf("%+v", a)
	}
}
