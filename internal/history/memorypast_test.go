// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// was returns the expected state of the feed at a version.
func (u *upstream) was(version uint64) contents {
	i, _ := slices.BinarySearchFunc(u.record, version+1, func(r recorded, v uint64) int {
		if r.version < v {
			return -1
		}
		return 1
	})
	return u.record[i-1].state
}

// lookBack compares the past states that the feed can return, and returns their number.
func (u *upstream) lookBack() (known int) {
	for v := uint64(1); v <= u.now.version+2; v++ {
		past, err := u.feed.At(v)
		switch {
		case v > u.now.version:
			if !errors.Is(err, ErrFuture) {
				u.t.Errorf("at version %d of %d: %v", v, u.now.version, err)
			}
			continue
		case u.lost(v) && v < u.now.version:
			if !errors.Is(err, ErrExpired) {
				u.t.Errorf("at version %d, which is unknown: %v", v, err)
			}
			continue
		case err != nil:
			u.t.Errorf("at version %d: %v", v, err)
			continue
		}
		known++
		u.compare(past, v)
	}
	return known
}

// compare reads a past state in all ways.
func (u *upstream) compare(past *Past, v uint64) {
	want := u.was(v)
	if past.Len() != len(want) || past.Version != v {
		u.t.Errorf("at version %d: %d objects at %d, want %d", v, past.Len(), past.Version, len(want))
	}
	prefix := []string{"", "n/", "n/a", "n/a1", "n/b", "m", "o"}[u.rng.IntN(7)]
	after := []string{"", "", "n/a", "n/a0", "n/ab", "n/b1", "n/c", "n", "z"}[u.rng.IntN(9)]
	for _, window := range [][2]string{{"", ""}, {prefix, after}} {
		prefix, after := window[0], window[1]
		var keys, got []string
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if strings.HasPrefix(key, prefix) && key > after {
				keys = append(keys, key+"@"+want[key])
			}
		}
		for key, o := range past.Range(prefix, after) {
			got = append(got, key+"@"+contentOf(o))
		}
		if !slices.Equal(got, keys) {
			u.t.Errorf("at version %d: Range(%q, %q) is %v, want %v", v, prefix, after, got, keys)
		}
		// A reader may stop anywhere.
		if len(keys) > 0 {
			n, first := u.rng.IntN(len(keys)), []string(nil)
			for key, o := range past.Range(prefix, after) {
				if len(first) == n {
					break
				}
				first = append(first, key+"@"+contentOf(o))
			}
			if !slices.Equal(first, keys[:n]) {
				u.t.Errorf("at version %d: the first %d are %v, want %v", v, n, first, keys[:n])
			}
		}
	}
}

// TestPast_isWhatThereWas compares every version of random histories with the recorded
// state.
func TestPast_isWhatThereWas(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	known, expired := 0, 0
	for run := range uint64(25) {
		t.Run("", func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, run))
			u := newUpstream(t, rng, []int64{1 << 20, 1 << 20, 5000}[rng.IntN(3)])
			for range 60 {
				switch n := rng.IntN(12); {
				case n < 5:
					u.happen()
				case n < 8:
					u.deliver()
				case n < 9 && rng.IntN(2) == 0:
					u.relist()
				case n < 11:
					u.flush()
				default:
					n := u.lookBack()
					known, expired = known+n, expired+int(u.now.version)-n
				}
			}
			u.flush()
			u.lookBack()
			if t.Failed() {
				t.Logf("run %d of seed %d, gaps %v", run, seed, u.gaps)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d states were known, %d not", known, expired)
	if known < 300 || expired < 50 {
		t.Error("hardly a test")
	}
}

// TestPast_besideAWriter reads past states while the feed is written to. It has one
// object, with a change at each version.
func TestPast_besideAWriter(t *testing.T) {
	f, i := newTestFeed(t, 50_000)
	const last = 3000
	var wg sync.WaitGroup
	var known atomic.Int64
	for range 3 {
		wg.Go(func() {
			for {
				m, err := f.Now()
				if err != nil {
					t.Error(err)
					return
				}
				if m.Version == last {
					return
				}
				v := max(2, m.Version-min(m.Version, rand.Uint64N(150)))
				past, err := f.At(v)
				if errors.Is(err, ErrExpired) || errors.Is(err, ErrFuture) {
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				for key, o := range past.Range("", "") {
					known.Add(1)
					if o.Version() != v || past.Len() != 1 {
						t.Errorf("at version %d %s is at %d, of %d", v, key, o.Version(), past.Len())
						return
					}
				}
			}
		})
	}
	for v := uint64(2); v <= last; v++ {
		if v%100 == 0 {
			i.Write(replaced(newPod(t, "a", v, nil)), listed(v))
		} else {
			i.Write(updated(newPod(t, "a", v, nil)))
		}
	}
	wg.Wait()
	if known.Load() < 100 {
		t.Errorf("%d states were looked at: hardly a test", known.Load())
	}
}
