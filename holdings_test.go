// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// wantCounted compares the counted sizes of an informer that is not being written with
// those of its objects.
func wantCounted(t *testing.T, i *watershed.Informer[*corev1.Pod]) {
	t.Helper()
	var bytes, packed int64
	for _, o := range i.Snapshot().Raw() {
		bytes += int64(o.Size())
		if o.Packed() {
			packed++
		}
	}
	s := i.Stats()
	expect.Equal(t, []int64{s.ObjectBytes, int64(s.Packed)}, []int64{bytes, packed})
}

// TestStats_areCountedWhileObjectsArePacked writes, deletes and packs objects at the same
// time, and compares the counts with a walk at the end.
func TestStats_areCountedWhileObjectsArePacked(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, memory := range []watershed.Memory{watershed.Fast, watershed.Packed} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(memory)))
			s := newServer()
			workload(s, 600)
			var report watershed.Report
			i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
				Memory: memory, Packing: watershed.NewPacking(&watershed.PackingOptions{Settling: 1}), Report: &report,
				Reflector: patient,
			})
			defer running(t, i.Run)()
			synced(t, i, time.Minute)
			wantCounted(t, i)
			var keys []string
			for key := range s.state() {
				keys = append(keys, key)
			}
			var packing sync.WaitGroup
			if memory == watershed.Packed {
				packing.Go(func() {
					for range 4 {
						watershed.Settle(i)
					}
				})
			}
			changes := 0
			for n := range 1500 {
				key := keys[rng.IntN(len(keys))]
				if _, ok := s.state()[key]; ok && rng.IntN(4) == 0 {
					s.delete(key)
				} else {
					s.put(key, func(p *corev1.Pod) { p.Annotations = map[string]string{"round": fmt.Sprint(n)} })
				}
				changes++
			}
			packing.Wait()
			expect.Eventually(t, time.Minute, func() error {
				if at := i.Snapshot().Version(); at < s.version {
					return fmt.Errorf("version %d of %d", at, s.version)
				}
				return nil
			})
			if memory == watershed.Packed {
				watershed.Settle(i)
			}
			wantCounted(t, i)
			informers := report.Informers()
			expect.Equal(t, len(informers), 1)
			n := informers[0].Counts
			expect.Equal(t, n.Lists[reflector.Begun], 1)
			expect.Equal(t, n.Added+n.Updated+n.Deleted, uint64(changes))
		})
	}
}

// TestCounts_delay has a handler of the store, an index, take its time.
func TestCounts_delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		counters := engine.NewCounters()
		i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
			Hooks:     engine.Hooks{Counters: counters},
			Reflector: patient,
		})
		watershed.IndexBy(i, func(*corev1.Pod) []string { time.Sleep(50 * time.Millisecond); return nil })
		defer running(t, i.Run)()
		synctest.Wait()
		expect.Equal(t, counters.Counts().Delay.Count, 0)
		s.put("a/b", nil)
		time.Sleep(time.Second)
		d := counters.Counts().Delay
		expect.Equal(t, d.Buckets, []uint64{0, 1, 1, 1})
		// Checks of invariants compute the index once more.
		if d.Sum != 50*time.Millisecond && d.Sum != 100*time.Millisecond {
			t.Errorf("the delay is %s", d.Sum)
		}
	})
}
