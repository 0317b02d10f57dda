// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/store"
)

// TestReaders_seeWholeBatches runs readers beside a writer whose every batch moves one
// token: the objects and the index of every snapshot agree, and the token is in exactly
// one place.
func TestReaders_seeWholeBatches(t *testing.T) {
	s := store.New(podKey, nil)
	x := store.NewIndex(s, "label", byLabel)
	const (
		places  = 50
		batches = 3000
	)
	name := func(i int) string { return fmt.Sprintf("a/%02d", i%places) }
	var first []delta.Delta[*pod]
	for i := range places {
		first = append(first, put(name(i), 0))
	}
	s.Apply(append(first, put(name(0), 0, "token")))

	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var last uint64
			for {
				snap := s.Snapshot()
				indexed := slices.Collect(x.Keys(snap, "token"))
				var scanned []string
				for key, p := range snap.All() {
					if len(p.Labels) > 0 {
						scanned = append(scanned, key)
					}
				}
				if len(indexed) != 1 || !slices.Equal(indexed, scanned) || snap.Len() != places {
					t.Errorf("index says %v, objects say %v, of %d", indexed, scanned, snap.Len())
					return
				}
				if snap.Revision() < last {
					t.Errorf("revision went back from %d to %d", last, snap.Revision())
					return
				}
				last = snap.Revision()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range batches {
		s.Apply([]delta.Delta[*pod]{put(name(i), i), put(name(i+1), i, "token")})
	}
	close(done)
	wg.Wait()
}

// TestReaders_findKeysThatComeAndGo runs readers beside a writer that adds and deletes
// keys, so that the hash table of keys changes and is replaced under them. Each reader
// finds exactly the keys that its snapshot lists, also in a snapshot that it has kept.
func TestReaders_findKeysThatComeAndGo(t *testing.T) {
	const names, batches = 200, 4000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := store.New(podKey, nil)
	name := func(i int) string { return fmt.Sprintf("a/%d", i) }
	check := func(snap *store.Snapshot[*pod]) bool {
		want := content(snap)
		for i := range names {
			if got, ok := snap.Get(name(i)); got != want[name(i)] || ok != (got != nil) {
				t.Errorf("revision %d: Get(%s) = %v, the list has %v", snap.Revision(), name(i), got, want[name(i)])
				return false
			}
		}
		if got := maps.Collect(snap.Unordered()); !maps.Equal(got, want) {
			t.Errorf("revision %d: Unordered has %d objects, the list %d", snap.Revision(), len(got), len(want))
			return false
		}
		return true
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for kept := s.Snapshot(); ; {
				now := s.Snapshot()
				if !check(now) || !check(kept) {
					return
				}
				if now.Revision()%7 == 0 {
					kept = now
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range batches {
		var batch []delta.Delta[*pod]
		for range 1 + r.IntN(8) {
			// The store grows to all keys and empties, several times.
			key := name(r.IntN(names))
			if r.IntN(batches/4) < i%(batches/4) {
				batch = append(batch, del(key, i))
			} else {
				batch = append(batch, put(key, i))
			}
		}
		s.Apply(batch)
	}
	close(done)
	wg.Wait()
}

// FuzzStore runs bytes as batches on a store with indexes and on a map. It compares all
// views after each batch, and every old snapshot at the end.
func FuzzStore(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 200, 201, 202, 7, 7, 7})
	f.Add([]byte{0x10, 0x21, 0x32, 0xff, 0x10, 0xf1, 0x05})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 400 {
			ops = ops[:400]
		}
		s := store.New(podKey, nil)
		labels := store.NewIndex(s, "label", byLabel)
		var versions *store.Index[*pod, int]
		want := map[string]*pod{}
		type moment struct {
			snap *store.Snapshot[*pod]
			want map[string]*pod
		}
		var moments []moment
		var batch []delta.Delta[*pod]
		for i, op := range ops {
			key := fmt.Sprintf("%c/%d", 'a'+op>>2%3, op>>4%5)
			switch op % 4 {
			case 0:
				batch = append(batch, del(key, i))
				delete(want, key)
			default:
				d := put(key, i, []string{"red", "blue", "green"}[:op>>5%4]...)
				batch = append(batch, d)
				want[key] = d.Object
			}
			if op>>6 != 3 && i != len(ops)-1 {
				continue
			}
			s.Apply(batch)
			batch = batch[:0]
			if op%5 == 0 {
				if versions != nil {
					versions.Remove()
				}
				versions = store.NewIndex(s, "version", func(p *pod) ([]int, error) { return []int{p.Version}, nil })
			}
			moments = append(moments, moment{s.Snapshot(), maps.Clone(want)})
		}
		for i, m := range moments {
			expect.Equal(t, content(m.snap), m.want)
			expect.Equal(t, maps.Collect(m.snap.Unordered()), m.want)
			for _, key := range []string{"a/0", "a/4", "b/1", "b/3", "c/2"} {
				got, ok := m.snap.Get(key)
				expect.Equal(t, got, m.want[key])
				expect.Equal(t, ok, m.want[key] != nil)
			}
			expect.Equal(t, keys(m.snap.All()), append([]string{}, slices.Sorted(maps.Keys(m.want))...))
			for _, label := range []string{"red", "blue", "green"} {
				var having []string
				for _, key := range slices.Sorted(maps.Keys(m.want)) {
					if slices.Contains(m.want[key].Labels, label) {
						having = append(having, key)
					}
				}
				expect.Equal(t, slices.Collect(labels.Keys(m.snap, label)), having)
			}
			if versions != nil {
				for key, p := range m.want {
					expect.Equal(t, keys(versions.Get(m.snap, p.Version)), []string{key})
				}
			}
			next := moments[rand.IntN(len(moments))]
			patched := maps.Clone(m.want)
			for c := range store.Diff(m.snap, next.snap) {
				if c.Type == delta.Deleted {
					delete(patched, c.Key)
				} else {
					patched[c.Key] = c.New
				}
			}
			expect.Equal(t, patched, next.want)
			if t.Failed() {
				t.Fatalf("at moment %d of %v", i, ops)
			}
		}
	})
}
