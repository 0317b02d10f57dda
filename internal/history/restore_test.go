// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"errors"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/wire"
)

// TestFeed_remembersARestoreFromFiles compares a feed whose server was restored from a backup
// with the feed of the next process, which has loaded the files: both accept the same
// versions.
func TestFeed_remembersARestoreFromFiles(t *testing.T) {
	f, i := newTestFeed(t, 64<<20)
	i.Write(updated(newPod(t, "a", 30, nil)), updated(newPod(t, "b", 40, nil)), reached(50))
	restored, end := replaced(newPod(t, "a", 8, nil)), listed(20)
	restored.Missed, end.Missed = true, true
	i.Write(restored, missing(newPod(t, "b", 40, nil), 20), end)
	stored := &storage.State{
		Version: 52, After: 20,
		Restored: &storage.Restored{Version: 50, Time: time.Now(), Former: []uint64{40, 0, 50, 30}},
	}
	for _, o := range []*wire.Object{newPod(t, "c", 22, nil), newPod(t, "d", 30, nil), newPod(t, "e", 52, nil)} {
		i.Write(updated(o))
		change := storage.Change{Type: delta.Added, Key: o.Key(), Object: o, Version: o.Version()}
		record := storage.Record{Version: o.Version(), Time: time.Now(), Changes: []storage.Change{change}}
		stored.Records = append(stored.Records, record)
	}
	w := NewWriter(f.resource, f.connection, 1<<20)
	w.Load(stored)
	w.Apply(i.Snapshot(), nil, true)
	next := w.Feed()
	accepted := 0
	for v := uint64(1); v < 60; v++ {
		_, _, want := f.Since(v)
		_, _, err := next.Since(v)
		if errors.Is(err, ErrExpired) != errors.Is(want, ErrExpired) ||
			errors.Is(err, ErrFuture) != errors.Is(want, ErrFuture) {
			t.Errorf("after version %d: %v, and without the restart %v", v, err, want)
		}
		if err == nil {
			accepted++
		}
	}
	if accepted != 4 {
		t.Errorf("%d versions are accepted instead of 20, 22, 51 and 52", accepted)
	}
}
