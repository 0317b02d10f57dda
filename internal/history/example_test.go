// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/wire"
)

// answers checks after which versions a feed continues, and after which revisions.
func answers(t *testing.T, f *Feed, accepted map[uint64]uint64, refused map[uint64]error) {
	t.Helper()
	for version, want := range accepted {
		if revision, _, err := f.Since(version); err != nil || revision != want {
			t.Errorf("after version %d: revision %d, %v, want revision %d", version, revision, err, want)
		}
	}
	for version, want := range refused {
		if _, _, err := f.Since(version); !errors.Is(err, want) {
			t.Errorf("after version %d: %v, want %v", version, err, want)
		}
	}
}

// namesAt returns the names of the objects at a version.
func namesAt(t *testing.T, f *Feed, version uint64) (names []string) {
	t.Helper()
	past, err := f.At(version)
	if err != nil {
		t.Fatalf("at version %d: %v", version, err)
	}
	for _, o := range past.Range("", "") {
		names = append(names, o.Name())
	}
	return names
}

// TestFeed_doesWhatThePackageCommentSays follows the example of the package comment.
func TestFeed_doesWhatThePackageCommentSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startFeed(t, "100", 64<<20)
		f, i := w.writer.Feed(), w.informer
		pod := func(name string, version uint64) *wire.Object { return newPod(t, name, version, nil) }
		a, b, c, d := pod("a", 103), pod("b", 105), pod("c", 112), pod("d", 125)
		i.Write(updated(a))
		i.Write(updated(b))
		i.Write(reached(110))
		i.Write(updated(c))
		answers(t, f, map[uint64]uint64{103: 1, 104: 1, 105: 2, 110: 2, 112: 3}, map[uint64]error{99: ErrExpired})
		if names := namesAt(t, f, 110); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("at version 110: %v", names)
		}

		i.Write(replaced(a), replaced(c), replaced(d), missing(b, 130), listed(130))
		refused := map[uint64]error{}
		for version := uint64(113); version < 130; version++ {
			refused[version] = ErrExpired
		}
		answers(t, f, map[uint64]uint64{105: 2, 112: 2, 130: 5}, refused)
		if _, oldest, _ := f.Since(113); oldest != 130 {
			t.Errorf("after version 113 the oldest is %d", oldest)
		}
		changes := []string{"112 Added n/c", "112 Deleted n/b", "125 Added n/d"}
		if got := received(t, feedCursor(t, f, 2, fanout.Everything())); !slices.Equal(got, changes) {
			t.Errorf("after version 112 a client receives %v", got)
		}
		if names := namesAt(t, f, 112); !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("at version 112: %v", names)
		}

		// The next process.
		stored := &storage.State{Version: 130, After: 100}
		for _, o := range []*wire.Object{a, b} {
			stored.Records = append(stored.Records, record(o.Version(), added(o)))
		}
		stored.Records = append(stored.Records, record(110), record(112, added(c)), record(130,
			storage.Change{Type: delta.Deleted, Missed: true, Key: b.Key(), Old: b, Object: b, Version: 130}, added(d),
		))
		stored.Records[4].Listed = true
		w.writer = NewWriter(&podResource, i.Connection, 64<<20)
		w.writer.Load(stored)
		w.writer.Apply(i.Snapshot(), nil, true)
		f = w.writer.Feed()
		answers(t, f, map[uint64]uint64{103: 1, 110: 2, 112: 2, 130: 5}, refused)
		i.Write(replaced(a), replaced(c), replaced(d), listed(180))
		answers(t, f, map[uint64]uint64{130: 5, 180: 5}, map[uint64]error{131: ErrExpired, 179: ErrExpired})

		back, end := replaced(a), listed(121)
		back.Missed, end.Missed = true, true
		i.Write(back, missing(c, 121), missing(d, 121), end)
		i.Write(updated(pod("e", 123)))
		i.Write(updated(pod("f", 125)))
		earlier := []uint64{0, 103, 105, 110, 112, 125, 130, 180}
		if got := f.era.restored; got.highest != 180 || !slices.Equal(got.earlier, earlier) {
			t.Errorf("the feed remembers %v, and %d as the highest version", got.earlier, got.highest)
		}
		again := map[uint64]error{122: ErrExpired, 125: ErrExpired, 150: ErrExpired, 180: ErrExpired, 181: ErrExpired}
		answers(t, f, map[uint64]uint64{121: 6, 123: 7}, again)
		time.Sleep(objectlog.MaxAge + time.Second)
		delete(again, 125)
		answers(t, f, map[uint64]uint64{123: 7, 125: 8}, again)
		i.Write(updated(pod("g", 190)))
		maps.DeleteFunc(again, func(version uint64, _ error) bool { return version == 181 })
		answers(t, f, map[uint64]uint64{181: 8, 190: 9}, again)
	})
}

// added returns the stored change that adds an object.
func added(o *wire.Object) storage.Change {
	return storage.Change{Type: delta.Added, Key: o.Key(), Object: o, Version: o.Version()}
}

// record returns the record of a stored state with the changes that led to it.
func record(version uint64, changes ...storage.Change) storage.Record {
	return storage.Record{Version: version, Time: time.Now(), Changes: changes}
}
