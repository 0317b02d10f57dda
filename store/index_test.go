// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

func TestIndex_findsByAnyOfManyValues(t *testing.T) {
	s := store.New(podKey, nil)
	x := store.NewIndex(s, "label", byLabel)
	s.Apply([]delta.Delta[*pod]{
		put("a/1", 1, "red", "big", "red"), put("a/2", 1, "red"), put("b/1", 1, "big"), put("b/2", 1),
	})
	snap := s.Snapshot()
	wantEqual(t, keys(x.Get(snap, "red")), []string{"a/1", "a/2"})
	wantEqual(t, keys(x.Get(snap, "big")), []string{"a/1", "b/1"})
	wantEqual(t, keys(x.Get(snap, "none")), []string{})
	wantEqual(t, slices.Collect(x.Keys(snap, "red")), []string{"a/1", "a/2"})
	wantEqual(t, slices.Collect(x.Values(snap)), []string{"big", "red"})
	like, err := x.Like(snap, podAt("x/x", 0, "red", "big"))
	wantEqual(t, err, nil)
	wantEqual(t, keys(like), []string{"a/1", "a/2", "b/1"})
}

func TestIndex_followsUpdatesAndDeletions(t *testing.T) {
	s := store.New(podKey, nil)
	x := store.NewIndex(s, "label", byLabel)
	steps := []struct {
		delta   delta.Delta[*pod]
		red     []string
		values  []string
		comment string
	}{
		{put("a/1", 1, "red"), []string{"a/1"}, []string{"red"}, "one value"},
		{put("a/1", 2, "red"), []string{"a/1"}, []string{"red"}, "the same"},
		{put("a/1", 3, "blue"), nil, []string{"blue"}, "another"},
		{put("a/1", 4, "red", "blue"), []string{"a/1"}, []string{"blue", "red"}, "two"},
		{put("a/1", 5, "blue", "red"), []string{"a/1"}, []string{"blue", "red"}, "in another order"},
		{put("a/1", 6, "red", "green"), []string{"a/1"}, []string{"green", "red"}, "one of two changed"},
		{put("a/1", 7), nil, nil, "none"},
		{put("a/1", 8, "red"), []string{"a/1"}, []string{"red"}, "again"},
		{del("a/1", 9), nil, nil, "gone"},
	}
	for _, step := range steps {
		s.Apply([]delta.Delta[*pod]{step.delta})
		if got := slices.Collect(x.Keys(s.Snapshot(), "red")); !slices.Equal(got, step.red) {
			t.Errorf("%s: red has %v, want %v", step.comment, got, step.red)
		}
		if got := slices.Collect(x.Values(s.Snapshot())); !slices.Equal(got, step.values) {
			t.Errorf("%s: values are %v, want %v", step.comment, got, step.values)
		}
	}
}

func TestIndex_addedLaterAndRemoved(t *testing.T) {
	s := store.New(podKey, nil)
	s.Apply([]delta.Delta[*pod]{put("a/1", 1, "red"), put("a/2", 2, "blue")})
	older := s.Snapshot()
	x := store.NewIndex(s, "version", func(p *pod) ([]int, error) { return []int{p.Version}, nil })
	wantEqual(t, keys(x.Get(s.Snapshot(), 2)), []string{"a/2"})
	with := s.Snapshot()
	s.Apply([]delta.Delta[*pod]{put("a/3", 2)})

	x.Remove()
	s.Apply([]delta.Delta[*pod]{put("a/4", 2)})
	// With or without the index in it, every snapshot answers for its moment.
	wantEqual(t, keys(x.Get(older, 2)), []string{"a/2"})
	wantEqual(t, keys(x.Get(with, 2)), []string{"a/2"})
	wantEqual(t, keys(x.Get(s.Snapshot(), 2)), []string{"a/2", "a/3", "a/4"})
	wantEqual(t, slices.Collect(x.Values(s.Snapshot())), []int{1, 2})
	x.Remove()
}

func TestIndex_functionThatFailsOrPanics(t *testing.T) {
	s := store.New(podKey, nil)
	boom := errors.New("boom")
	x := store.NewIndex(s, "label", func(p *pod) ([]string, error) {
		switch p.Labels[0] { // panics without labels
		case "bad":
			return []string{"half"}, boom
		default:
			return p.Labels, nil
		}
	})
	s.Apply([]delta.Delta[*pod]{put("a/1", 1, "red"), put("a/2", 1, "bad"), put("a/3", 1)})
	snap := s.Snapshot()
	wantEqual(t, snap.Len(), 3) // stored all the same
	wantEqual(t, slices.Collect(x.Values(snap)), []string{"red"})
	n, err := x.Failing()
	wantEqual(t, n, 2)
	if !strings.Contains(err.Error(), "index label of a/3: panic: runtime error: index out of range") {
		t.Errorf("last error: %v", err)
	}

	// What was indexed and now fails leaves the index.
	s.Apply([]delta.Delta[*pod]{put("a/1", 2, "bad")})
	n, err = x.Failing()
	wantEqual(t, n, 3)
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "index label of a/1") {
		t.Errorf("last error: %v", err)
	}
	wantEqual(t, slices.Collect(x.Values(s.Snapshot())), nil)

	// And comes back when it is well, or is forgotten when it is gone.
	s.Apply([]delta.Delta[*pod]{put("a/1", 3, "red"), del("a/2", 4)})
	n, err = x.Failing()
	wantEqual(t, n, 1)
	if err == nil {
		t.Error("the last error is forgotten")
	}
	wantEqual(t, slices.Collect(x.Values(s.Snapshot())), []string{"red"})
	if _, err := x.Like(s.Snapshot(), podAt("x/x", 1)); err == nil {
		t.Error("Like hides the function's failure")
	}
}

func TestIndex_survivesObjectsChangedBehindItsBack(t *testing.T) {
	s := store.New(podKey, nil)
	x := store.NewIndex(s, "label", byLabel)
	guilty := podAt("a/1", 1, "red")
	s.Apply([]delta.Delta[*pod]{{Type: delta.Added, Key: "a/1", Object: guilty}})
	guilty.Labels = []string{"blue"}
	s.Delete("a/1")
	wantEqual(t, slices.Collect(x.Values(s.Snapshot())), nil)
}
