//go:build !invariants && !race

// The figures are those of a plain build.

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestMemory_perObject checks the figures in the package comment of the store.
func TestMemory_perObject(t *testing.T) {
	const objects = 50_000
	p := podAt("shared/object", 1, "red")
	deltas := make([]delta.Delta[*pod], objects)
	for i := range deltas {
		deltas[i] = delta.Delta[*pod]{
			Type: delta.Added, Key: fmt.Sprintf("namespace-%03d/pod-%06d", i/1000, i), Object: p,
		}
	}
	for _, test := range []struct {
		indexes int
		limit   float64
	}{{0, 115}, {1, 235}, {3, 480}} {
		before := heap()
		s := store.New(podKey, nil)
		for i := range test.indexes {
			store.NewIndex(s, fmt.Sprint("index", i), byLabel)
		}
		for from := 0; from < objects; from += 1000 {
			s.Apply(deltas[from : from+1000])
		}
		per := (heap() - before) / objects
		t.Logf("%d indexes: %.0f bytes per object", test.indexes, per)
		if per > test.limit {
			t.Errorf("%d indexes: %.0f bytes per object, want at most %.0f", test.indexes, per, test.limit)
		}
		keys, indexes := s.Snapshot().Size()
		if reported := float64(keys+indexes) / objects; reported < per*0.85 || reported > per*1.15 {
			t.Errorf("%d indexes: %.0f bytes per object, the store reports %.0f", test.indexes, per, reported)
		}
		for from := 0; from < objects; from += 1000 {
			var gone []delta.Delta[*pod]
			for _, d := range deltas[from : from+1000] {
				gone = append(gone, delta.Delta[*pod]{Type: delta.Deleted, Key: d.Key, Object: p})
			}
			s.Apply(gone)
		}
		if left := (heap() - before) / objects; left > 4 {
			t.Errorf("%d indexes: %.0f bytes per object are left when all are gone", test.indexes, left)
		}
		runtime.KeepAlive(s)
	}
	runtime.KeepAlive(deltas)
}

// TestMemory_perUpdate logs the garbage that an update makes, and checks its limit.
func TestMemory_perUpdate(t *testing.T) {
	const objects = 100_000
	s := store.New(podKey, nil)
	p := podAt("shared/object", 1, "red")
	stored, deltas := make([]delta.Delta[*pod], objects), make([]delta.Delta[*pod], objects)
	for i := range stored {
		stored[i] = delta.Delta[*pod]{
			Type: delta.Updated, Key: fmt.Sprintf("namespace-%03d/pod-%06d", i/1000, i), Object: p,
		}
		// The stride visits every object once, each far from the previous one.
		deltas[i*7919%objects] = stored[i]
	}
	s.Apply(stored)
	for _, test := range []struct {
		batch int
		limit uint64
	}{{1, 1000}, {100, 530}, {1000, 410}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for from := 0; from < 20_000; from += test.batch {
			s.Apply(deltas[from : from+test.batch])
		}
		runtime.ReadMemStats(&after)
		per := (after.TotalAlloc - before.TotalAlloc) / 20_000
		t.Logf("batches of %d: %d bytes per update", test.batch, per)
		if per > test.limit {
			t.Errorf("batches of %d: %d bytes per update, want at most %d", test.batch, per, test.limit)
		}
	}
}

// TestMemory_afterChurn adds and deletes objects while one stays, and checks that neither
// the deleted objects nor their memory remain.
func TestMemory_afterChurn(t *testing.T) {
	s := store.New(podKey, nil)
	x := store.NewIndex(s, "label", byLabel)
	if err := s.Put(podAt("a/stays", 1)); err != nil {
		t.Fatal(err)
	}
	before := heap()
	for i := range 50 {
		var come, gone []delta.Delta[*pod]
		for j := range 1000 {
			key := fmt.Sprintf("a/%d-%d", i, j)
			p := podAt(key, i, append(make([]string, 0, 256), "red", key)...) // 4 KB
			come = append(come, delta.Delta[*pod]{Type: delta.Added, Key: key, Object: p})
			gone = append(gone, delta.Delta[*pod]{Type: delta.Deleted, Key: key, Object: p})
		}
		s.Apply(come)
		s.Apply(gone)
	}
	// Memory for a thousand objects may remain, but not the fifty thousand objects.
	if left := heap() - before; left > 500_000 {
		t.Errorf("%.0f bytes are left of objects that are gone", left)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(x)
}
