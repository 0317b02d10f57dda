// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store_test

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pod struct {
	Namespace, Name string
	Labels          []string
	Version         int
}

func podKey(p *pod) string { return p.Namespace + "/" + p.Name }

func podAt(key string, version int, labels ...string) *pod {
	namespace, name, _ := strings.Cut(key, "/")
	return &pod{Namespace: namespace, Name: name, Version: version, Labels: labels}
}

func put(key string, version int, labels ...string) delta.Delta[*pod] {
	return delta.Delta[*pod]{
		Type: delta.Updated, Key: key, Object: podAt(key, version, labels...), Version: uint64(version),
	}
}

func del(key string, version int) delta.Delta[*pod] {
	return delta.Delta[*pod]{Type: delta.Deleted, Key: key, Object: podAt(key, version), Version: uint64(version)}
}

func byLabel(p *pod) ([]string, error) { return p.Labels, nil }

func keys(seq iter.Seq2[string, *pod]) []string {
	ks := []string{}
	for key, p := range seq {
		if podKey(p) != key {
			ks = append(ks, "wrong object under")
		}
		ks = append(ks, key)
	}
	return ks
}

// show formats changes as "Updated a/1 3→4 @2": versions, and the revision.
func show(changes iter.Seq[store.Change[*pod]]) []string {
	var words []string
	for c := range changes {
		word := fmt.Sprintf("%s %s ", c.Type, c.Key)
		if c.Old != nil {
			word += fmt.Sprint(c.Old.Version)
		}
		word += "→"
		if c.New != nil {
			word += fmt.Sprint(c.New.Version)
		}
		word += fmt.Sprintf(" @%d", c.Revision)
		if c.Missed {
			word += " (missed)"
		}
		words = append(words, word)
	}
	return words
}

func TestApply_reportsWhatChanged(t *testing.T) {
	s := store.New(podKey, nil)
	got := s.Apply([]delta.Delta[*pod]{
		put("a/1", 1), put("a/2", 2), put("a/1", 3), del("a/2", 4), del("a/9", 5),
		{Type: delta.Added, Key: "a/1", Object: podAt("a/1", 6)},
		{Type: delta.Sync, Key: "a/1", Object: podAt("a/1", 6)},
		{Type: delta.Sync, Key: "a/9", Object: podAt("a/9", 6)},
	})
	// The store's content, not the delta's type, decides between Added and Updated. A
	// deletion has the final state. A deletion of an unknown object makes no change.
	expect.Equal(t, show(slices.Values(got)), []string{
		"Added a/1 →1 @1", "Added a/2 →2 @2", "Updated a/1 1→3 @3", "Deleted a/2 2→4 @4",
		"Updated a/1 3→6 @5", "Sync a/1 6→6 @6",
	})
	snap := s.Snapshot()
	expect.Equal(t, snap.Revision(), uint64(6))
	expect.Equal(t, snap.Version(), uint64(5))
	expect.Equal(t, keys(snap.All()), []string{"a/1"})
}

func TestApply_sameVersionIsNoChange(t *testing.T) {
	s := store.New(podKey, &store.Options[*pod]{Same: func(old, now *pod) bool { return old.Version == now.Version }})
	s.Apply([]delta.Delta[*pod]{put("a/1", 1)})
	first, _ := s.Get("a/1")
	before := s.Snapshot()
	expect.Equal(t, show(slices.Values(s.Apply([]delta.Delta[*pod]{put("a/1", 1)}))), nil)
	if again, _ := s.Get("a/1"); again != first {
		t.Error("the same version replaced the object")
	}
	if s.Snapshot() != before {
		t.Error("a batch that changes nothing published a snapshot")
	}
	expect.Equal(t, show(slices.Values(s.Apply([]delta.Delta[*pod]{put("a/1", 2)}))), []string{"Updated a/1 1→2 @2"})
}

func TestApply_olderStateIsNoChange(t *testing.T) {
	s := store.New(podKey, &store.Options[*pod]{Older: func(old, now *pod) bool { return now.Version < old.Version }})
	s.Apply([]delta.Delta[*pod]{put("a/1", 5), put("a/2", 6)})
	expect.Equal(t, show(slices.Values(s.Apply([]delta.Delta[*pod]{put("a/1", 4), del("a/1", 4)}))), nil)
	// A deletion that was inferred from a list always carries an old state.
	missed := del("a/2", 3)
	missed.Missed = true
	expect.Equal(t, show(slices.Values(s.Apply([]delta.Delta[*pod]{missed}))), []string{"Deleted a/2 6→3 @3 (missed)"})
	// A source that went back marks its objects as Missed.
	back := put("a/1", 4)
	back.Type, back.Missed = delta.Replaced, true
	expect.Equal(t, show(slices.Values(s.Apply([]delta.Delta[*pod]{back}))), []string{"Updated a/1 5→4 @4"})
}

func TestSnapshot_versionFollowsBookmarks(t *testing.T) {
	s := store.New(podKey, nil)
	bookmark := func(version uint64, back bool) {
		if changes := s.Apply([]delta.Delta[*pod]{
			{Type: delta.Bookmark, Version: version, Missed: back},
		}); len(changes) > 0 {
			t.Errorf("a bookmark changed %v", changes)
		}
	}
	s.Apply([]delta.Delta[*pod]{put("a/1", 5)})
	bookmark(9, false)
	expect.Equal(t, s.Snapshot().Version(), 9)
	bookmark(7, false)
	expect.Equal(t, s.Snapshot().Version(), 9)
	bookmark(3, true)
	expect.Equal(t, s.Snapshot().Version(), 3)
	expect.Equal(t, s.Snapshot().Revision(), 1)
}

func TestSnapshot_rangesInKeyOrder(t *testing.T) {
	s := store.New(podKey, nil)
	for _, key := range []string{"b/1", "a/2", "ab/1", "a/1", "a/3", "c/1"} {
		if err := s.Put(podAt(key, 1)); err != nil {
			t.Fatal(err)
		}
	}
	snap := s.Snapshot()
	expect.Equal(t, keys(snap.All()), []string{"a/1", "a/2", "a/3", "ab/1", "b/1", "c/1"})
	expect.Equal(t, keys(snap.Prefix("a/")), []string{"a/1", "a/2", "a/3"})
	expect.Equal(t, keys(snap.Range("a/", "a/1")), []string{"a/2", "a/3"})
	expect.Equal(t, keys(snap.Range("a/", "a/10")), []string{"a/2", "a/3"}) // after a key that does not exist
	expect.Equal(t, keys(snap.Range("a/", "a/3")), []string{})
	expect.Equal(t, keys(snap.Range("a/", "b")), []string{})
	expect.Equal(t, keys(snap.Range("b/", "a/2")), []string{"b/1"}) // after a key before the prefix
	expect.Equal(t, keys(snap.Range("", "ab/1")), []string{"b/1", "c/1"})
	expect.Equal(t, keys(snap.Prefix("x/")), []string{})
	for range snap.All() {
		break // stopping early is allowed
	}
}

func TestSnapshot_neverChanges(t *testing.T) {
	s := store.New(podKey, nil)
	byLabel := store.NewIndex(s, "label", byLabel)
	var snaps []*store.Snapshot[*pod]
	const rounds = 200
	for i := range rounds {
		s.Apply([]delta.Delta[*pod]{put(fmt.Sprintf("a/%03d", i), i, "new"), put("a/000", i, fmt.Sprint("l", i))})
		snaps = append(snaps, s.Snapshot())
	}
	for i := range rounds {
		s.Delete(fmt.Sprintf("a/%03d", i))
	}
	expect.Equal(t, s.Snapshot().Len(), 0)
	for i, snap := range snaps {
		if snap.Len() != i+1 {
			t.Fatalf("snapshot %d has %d objects now", i, snap.Len())
		}
		p, _ := snap.Get("a/000")
		expect.Equal(t, p.Version, i)
		expect.Equal(t, slices.Collect(byLabel.Keys(snap, fmt.Sprint("l", i))), []string{"a/000"})
		expect.Equal(t, len(slices.Collect(byLabel.Keys(snap, "new"))), i)
	}
}

func TestPutDeleteReplace(t *testing.T) {
	noKey := func(p *pod) string {
		if p.Name == "" {
			return ""
		}
		return podKey(p)
	}
	s := store.New(noKey, nil)
	if err := s.Put(&pod{}); !errors.Is(err, store.ErrNoKey) {
		t.Errorf("Put: %v, want ErrNoKey", err)
	}
	if _, err := s.Replace([]*pod{podAt("a/1", 1), {}}, 1); !errors.Is(err, store.ErrNoKey) || s.Snapshot().Len() != 0 {
		t.Errorf("Replace: %v with %d objects, want ErrNoKey and none", err, s.Snapshot().Len())
	}
	for _, key := range []string{"a/1", "a/2", "a/3"} {
		if err := s.Put(podAt(key, 1)); err != nil {
			t.Fatal(err)
		}
	}
	expect.Equal(t, s.Delete("a/3"), true)
	expect.Equal(t, s.Delete("a/3"), false)
	changes, err := s.Replace([]*pod{podAt("a/2", 5), podAt("a/4", 5)}, 5)
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, show(slices.Values(changes)), []string{
		"Updated a/2 1→5 @5", "Added a/4 →5 @6", "Deleted a/1 1→1 @7 (missed)",
	})
	expect.Equal(t, keys(s.All()), []string{"a/2", "a/4"})
	expect.Equal(t, s.Snapshot().Version(), uint64(5))
}

func TestDiff(t *testing.T) {
	s := store.New(podKey, nil)
	s.Apply([]delta.Delta[*pod]{put("a/1", 1), put("a/2", 1), put("a/3", 1)})
	from := s.Snapshot()
	s.Apply([]delta.Delta[*pod]{
		put("a/2", 2), del("a/1", 3), put("a/0", 4), put("b/1", 5), put("a/3", 6), put("a/3", 7), del("b/1", 8),
	})
	to := s.Snapshot()
	// There is one change per object, whatever happened in between, in key order.
	expect.Equal(t, show(store.Diff(from, to)), []string{
		"Added a/0 →4 @6", "Deleted a/1 1→1 @10 (missed)", "Updated a/2 1→2 @4", "Updated a/3 1→7 @9",
	})
	expect.Equal(t, show(store.Diff(to, to)), nil)
	expect.Equal(t, len(show(store.Diff(to, from))), 4)
	for range store.Diff(from, to) {
		break
	}
}

func TestGet_allocatesNothing(t *testing.T) {
	s := store.New(podKey, nil)
	for i := range 1000 {
		_ = s.Put(podAt(fmt.Sprintf("a/%d", i), i))
	}
	if n := testing.AllocsPerRun(100, func() { s.Get("a/500") }); n != 0 {
		t.Errorf("Get allocates %v times", n)
	}
}

// content returns a snapshot as a plain map.
func content(s *store.Snapshot[*pod]) map[string]*pod { return maps.Collect(s.All()) }
