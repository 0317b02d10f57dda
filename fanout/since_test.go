// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/store"
)

// at returns a change with a revision and a version.
func at(revision, version uint64) store.Change[*pod] {
	return store.Change[*pod]{Type: delta.Added, Key: "a/1", New: &pod{}, Revision: revision, Version: version}
}

// since returns the published changes that a reader at a version may not have seen: those
// with later versions and, if several changes share the version, those too. It reports
// expired if some of them have been dropped.
func since(all []store.Change[*pod], after, version uint64) (want []uint64, expired bool) {
	same := 0
	for _, c := range all {
		if c.Version == version {
			same++
		}
	}
	for _, c := range all {
		if c.Version > version || c.Version == version && same > 1 {
			want = append(want, c.Revision)
			expired = expired || c.Revision <= after
		}
	}
	return want, expired
}

// read returns the changes that a log returns to a reader at a version.
func read(t *testing.T, l *fanout.Log[*pod], version uint64) (got []uint64, expired bool) {
	t.Helper()
	revision, err := l.Since(version)
	if err != nil {
		if !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("Since(%d): %v", version, err)
		}
		return nil, true
	}
	c := cursor(t, l, revision, fanout.Everything())
	for {
		batch, err := c.TryNext()
		if err != nil {
			t.Errorf("after %d: %v", revision, err)
		}
		if len(batch) == 0 {
			return got, false
		}
		got = append(got, revisions(batch)...)
	}
}

// TestSince_isWhatAReaderHasNotSeen compares the result for every version of random
// histories with the published changes, however the log has been trimmed and cut.
func TestSince_isWhatAReaderHasNotSeen(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	answered, expired := 0, 0
	for run := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, run))
			opts := &fanout.Options[*pod]{Count: []int{1, 7, 30, 1000}[rng.IntN(4)], Age: time.Minute}
			if rng.IntN(2) == 0 {
				opts.Bytes, opts.Size = 500, func(store.Change[*pod]) int { return rng.IntN(60) }
			}
			l := fanout.New(opts)
			var all []store.Change[*pod]
			began := uint64(1 + rng.IntN(50))
			revision, version := uint64(rng.IntN(3)), began
			for range 40 {
				switch n := rng.IntN(20); {
				case n == 0:
					revision++
					l.Cut(revision)
					began = uint64(1 + rng.IntN(50))
					all, version = nil, began
				case n == 1:
					l.Trim(time.Duration(rng.IntN(80)) * time.Second)
				case n == 2:
					l.Expire()
				case n < 8:
					time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
				default:
					var batch []store.Change[*pod]
					for range 1 + rng.IntN([]int{2, 5, 70}[rng.IntN(3)]) {
						revision++
						version += uint64(rng.IntN(3) * rng.IntN(2))
						batch = append(batch, at(revision, version))
					}
					all = append(all, batch...)
					l.Publish(batch)
				}
				after := l.Stats().After
				for range 12 {
					// Try a version near the edge of the window, or any.
					v := max(began+2, l.Oldest()+uint64(rng.IntN(5))) - 2
					if rng.IntN(2) == 0 {
						v = began + rng.Uint64N(version+2-began)
					}
					want, gone := since(all, after, v)
					got, ended := read(t, l, v)
					if ended != gone || !gone && !slices.Equal(got, want) {
						t.Fatalf("run %d: after version %d of %d to %d: got %v (expired %t), want %v (%t)", run, v,
							began, version, got, ended, want, gone)
					}
					answered++
					if gone {
						expired++
					}
					if oldest := l.Oldest(); gone != (v < oldest) {
						t.Fatalf("run %d: version %d is expired: %t, the oldest is %d", run, v, gone, oldest)
					}
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d questions, %d of them too old", answered, expired)
	if expired < answered/10 || expired > answered*9/10 {
		t.Error("hardly a test")
	}
}

// TestSince_besideAWriter calls Since while the log is written to. A reader that
// continues from the result must miss nothing.
func TestSince_besideAWriter(t *testing.T) {
	const total = 30_000
	all := make([]store.Change[*pod], total)
	rng := rand.New(rand.NewPCG(1, 2))
	version := uint64(1)
	for i := range all {
		version += uint64(rng.IntN(2))
		all[i] = at(uint64(i+1), version)
	}
	l := fanout.New(&fanout.Options[*pod]{Count: 500})
	var wg sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		wg.Go(func() {
			for l.Stats().Last < total && !t.Failed() {
				last := l.Stats().Last
				if last == 0 {
					continue
				}
				v := l.Oldest() + uint64(rand.IntN(300))
				if v >= all[last-1].Version {
					continue // more changes with this version may follow
				}
				revision, err := l.Since(v)
				if err != nil {
					continue // dropped in the meantime
				}
				c, err := l.Cursor(revision, fanout.Everything())
				if err != nil {
					t.Error(err)
					return
				}
				batch, err := c.TryNext()
				if err != nil || len(batch) == 0 {
					continue
				}
				// The reader has seen the change before the first of the batch, and not
				// the first.
				first := batch[0].Revision
				before := uint64(0)
				if first > 1 {
					before = all[first-2].Version
				}
				if first != revision+1 || batch[0].Version < v || before > v || before == v && batch[0].Version == v {
					t.Errorf("after version %d comes revision %d with version %d, before it is %d", v, first,
						batch[0].Version, before)
					return
				}
				answered.Add(1)
			}
		})
	}
	// The writer could finish before any reader has called Since, so it waits for a
	// result now and then. In between, the readers run beside it.
	for i, next := 0, 1000; i < total; {
		n := min(1+rng.IntN(40), total-i)
		l.Publish(all[i : i+n])
		if i += n; i < next || i == total {
			continue
		}
		next += 1000
		for had := answered.Load(); answered.Load() == had && !t.Failed(); {
			runtime.Gosched()
		}
	}
	wg.Wait()
}

func TestTrim_dropsWhatIsOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fanout.New(&fanout.Options[*pod]{Count: 8, Age: time.Minute}) // a chunk for each change
		for r := uint64(1); r <= 6; r++ {
			publish(l, at(r, r*10))
			time.Sleep(10 * time.Second)
		}
		left := func() int { return l.Stats().Changes }
		l.Trim(time.Minute) // the first is exactly that old
		expect.Equal(t, left(), 6)
		l.Trim(45 * time.Second)
		expect.Equal(t, left(), 4)
		expect.Equal(t, l.Oldest(), uint64(20))
		l.Trim(time.Hour) // more than the log's own age
		expect.Equal(t, left(), 4)
		time.Sleep(35 * time.Second)
		l.Trim(time.Hour)
		expect.Equal(t, left(), 2)
		l.Trim(0)
		expect.Equal(t, left(), 0)
		s := l.Stats()
		expect.Equal(t, []uint64{s.After, s.Last, l.Oldest()}, []uint64{6, 6, 60})
		// There are no changes since.
		expect.Equal(t, rest(t, cursor(t, l, 6, fanout.Everything())), nil)
		got, expired := read(t, l, 60)
		expect.Equal(t, [2]bool{len(got) == 0, expired}, [2]bool{true, false})
	})
}

func TestTryNext_doesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fanout.New(&fanout.Options[*pod]{Count: 8})
		try := func(c *fanout.Cursor[*pod]) []uint64 {
			t.Helper()
			batch, err := c.TryNext()
			if err != nil {
				t.Error(err)
			}
			return revisions(batch)
		}
		all, one := cursor(t, l, 0, fanout.Everything()), cursor(t, l, 0, fanout.Key("b/1"))
		expect.Equal(t, try(all), nil)
		publish(l, added(1, "a/1"), added(2, "b/1"))
		expect.Equal(t, try(one), []uint64{2})
		expect.Equal(t, try(one), nil)
		expect.Equal(t, try(all), []uint64{1})
		for r := uint64(3); r <= 20; r++ {
			publish(l, added(r, "a/1"))
		}
		if _, err := all.TryNext(); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("a reader that is behind received %v", err)
		}
		expect.Equal(t, try(cursor(t, l, 20, fanout.Everything())), nil)
	})
}
