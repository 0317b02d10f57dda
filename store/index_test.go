// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/store"
)

func TestIndex_findsByAnyOfManyValues(t *testing.T) {
	s := store.New(podKey, nil)
	x := store.NewIndex(s, "label", byLabel)
	s.Apply([]delta.Delta[*pod]{
		put("a/1", 1, "red", "big", "red"), put("a/2", 1, "red"), put("b/1", 1, "big"), put("b/2", 1),
	})
	snap := s.Snapshot()
	expect.Equal(t, keys(x.Get(snap, "red")), []string{"a/1", "a/2"})
	expect.Equal(t, keys(x.Get(snap, "big")), []string{"a/1", "b/1"})
	expect.Equal(t, keys(x.Get(snap, "none")), []string{})
	expect.Equal(t, slices.Collect(x.Keys(snap, "red")), []string{"a/1", "a/2"})
	expect.Equal(t, slices.Collect(x.Values(snap)), []string{"big", "red"})
}

// The objects of a value are read from any key on, within a prefix.
func TestIndex_range(t *testing.T) {
	s := store.New(podKey, nil)
	old := s.Snapshot()
	x := store.NewIndex(s, "label", byLabel)
	s.Apply([]delta.Delta[*pod]{
		put("a/1", 1, "red"), put("a/2", 1, "red", "big"), put("a/3", 1), put("aa/1", 1, "red"), put("b/1", 1, "red"),
		put("b/2", 1, "small"),
	})
	for _, test := range []struct{ value, prefix, after, want string }{
		{"red", "", "", "a/1 a/2 aa/1 b/1"},
		{"red", "", "a/1", "a/2 aa/1 b/1"},
		{"red", "", "a/11", "a/2 aa/1 b/1"},
		{"red", "", "b/1", ""},
		{"red", "a/", "", "a/1 a/2"},
		{"red", "a/", "a/1", "a/2"},
		{"red", "a/", "a/2", ""},
		{"red", "b/", "a/2", "b/1"},
		{"red", "a/", "b/1", ""},
		{"red", "c/", "", ""},
		{"big", "", "a/1", "a/2"},
		{"big", "", "a/2", ""},
		{"none", "a/", "", ""},
	} {
		if got := strings.Join(keys(x.Range(s.Snapshot(), test.value, test.prefix, test.after)),
			" "); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
	expect.Equal(t, keys(x.Range(old, "red", "", "")), []string{})
	// A snapshot without the index is searched, with the same result.
	x.Remove()
	s.Apply([]delta.Delta[*pod]{put("b/3", 2, "red")})
	expect.Equal(t, keys(x.Range(s.Snapshot(), "red", "b/", "b/1")), []string{"b/3"})
}

// A page from the end of a value costs about as much as the first one. It would cost some
// thousand times as much if the objects before it were read.
func TestIndex_lateKeysCostNoMore(t *testing.T) {
	s := store.New(podKey, nil)
	x := store.NewIndex(s, "label", byLabel)
	const objects = 100_000
	list := make([]*pod, objects)
	for i := range list {
		list[i] = podAt(fmt.Sprintf("a/%06d", i), 1, "red")
	}
	_, err := s.Replace(list, 1)
	expect.NoError(t, err)
	snap := s.Snapshot()
	cost := func(after string) time.Duration {
		fastest := time.Hour
		for range 20 {
			began := time.Now()
			for range x.Range(snap, "red", "", after) {
				break
			}
			fastest = min(fastest, time.Since(began))
		}
		return fastest
	}
	if first, last := cost(""), cost(fmt.Sprintf("a/%06d", objects-2)); last > 20*max(first, time.Microsecond) {
		t.Errorf("the first object is found in %v, the last in %v", first, last)
	}
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
	expect.Equal(t, keys(x.Get(s.Snapshot(), 2)), []string{"a/2"})
	with := s.Snapshot()
	s.Apply([]delta.Delta[*pod]{put("a/3", 2)})

	x.Remove()
	s.Apply([]delta.Delta[*pod]{put("a/4", 2)})
	// Every snapshot returns the results of its own time, with or without the index in
	// it.
	expect.Equal(t, keys(x.Get(older, 2)), []string{"a/2"})
	expect.Equal(t, keys(x.Get(with, 2)), []string{"a/2"})
	expect.Equal(t, keys(x.Get(s.Snapshot(), 2)), []string{"a/2", "a/3", "a/4"})
	expect.Equal(t, slices.Collect(x.Values(s.Snapshot())), []int{1, 2})
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
	expect.Equal(t, snap.Len(), 3) // all objects are stored
	expect.Equal(t, slices.Collect(x.Values(snap)), []string{"red"})
	n, err := x.Failing()
	expect.Equal(t, n, 2)
	if !strings.Contains(err.Error(), "index label of a/3: panic: runtime error: index out of range") {
		t.Errorf("last error: %v", err)
	}

	// An indexed object on which the function now fails leaves the index.
	s.Apply([]delta.Delta[*pod]{put("a/1", 2, "bad")})
	n, err = x.Failing()
	expect.Equal(t, n, 3)
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "index label of a/1") {
		t.Errorf("last error: %v", err)
	}
	expect.Equal(t, slices.Collect(x.Values(s.Snapshot())), nil)

	// It is indexed again when the function succeeds, and no longer counted when it is
	// deleted.
	s.Apply([]delta.Delta[*pod]{put("a/1", 3, "red"), del("a/2", 4)})
	n, err = x.Failing()
	expect.Equal(t, n, 1)
	if err == nil {
		t.Error("the last error is forgotten")
	}
	expect.Equal(t, slices.Collect(x.Values(s.Snapshot())), []string{"red"})
}

func TestIndex_survivesObjectsChangedBehindItsBack(t *testing.T) {
	s := store.New(podKey, nil)
	x := store.NewIndex(s, "label", byLabel)
	guilty := podAt("a/1", 1, "red")
	s.Apply([]delta.Delta[*pod]{{Type: delta.Added, Key: "a/1", Object: guilty}})
	guilty.Labels = []string{"blue"}
	s.Delete("a/1")
	expect.Equal(t, slices.Collect(x.Values(s.Snapshot())), nil)
}

// TestNewIndex_doesNotHoldWriters writes while an index is computed: slots of deleted
// objects are used again, and the index must still follow.
func TestNewIndex_doesNotHoldWriters(t *testing.T) {
	s := store.New(podKey, nil)
	s.Apply([]delta.Delta[*pod]{
		put("a/1", 1, "red"), put("a/2", 1, "red", "big"), put("a/3", 1, "red"), put("a/4", 1, "fails"),
	})
	old := s.Snapshot()
	entered, written := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	built := make(chan *store.Index[*pod, string])
	go func() {
		built <- store.NewIndex(s, "label", func(p *pod) ([]string, error) {
			enter()
			<-written
			if slices.Contains(p.Labels, "fails") {
				return nil, errors.New("does not like it")
			}
			return p.Labels, nil
		})
	}()
	<-entered
	s.Apply([]delta.Delta[*pod]{
		put("a/1", 2, "blue"),             // changes
		del("a/2", 2), put("a/5", 2, "x"), // takes the slot of a/2
		del("a/3", 2), put("a/3", 3, "red", "green"), // is created again
		del("a/4", 2), // had failed
	})
	s.Apply([]delta.Delta[*pod]{put("a/6", 4, "fails"), put("a/7", 4, "red")})
	if s.Snapshot() == old {
		t.Fatal("the writes are not visible")
	}
	close(written)
	x := <-built
	now := s.Snapshot()
	expect.Equal(t, slices.Collect(x.Values(now)), []string{"blue", "green", "red", "x"})
	expect.Equal(t, keys(x.Get(now, "red")), []string{"a/3", "a/7"})
	expect.Equal(t, keys(x.Get(now, "blue")), []string{"a/1"})
	expect.Equal(t, keys(x.Get(now, "x")), []string{"a/5"})
	expect.Equal(t, keys(x.Get(old, "big")), []string{"a/2"})
	failing, _ := x.Failing()
	expect.Equal(t, failing, 1)
	s.Apply([]delta.Delta[*pod]{put("a/5", 5, "red"), del("a/3", 5)})
	expect.Equal(t, keys(x.Get(s.Snapshot(), "red")), []string{"a/5", "a/7"})
	expect.Equal(t, slices.Collect(x.Values(s.Snapshot())), []string{"blue", "red"})
}

// TestNewIndex_besideAWriter adds and removes indexes while a writer runs without pause:
// every snapshot taken after NewIndex agrees with its index.
func TestNewIndex_besideAWriter(t *testing.T) {
	s := store.New(podKey, nil)
	for n := range 100 {
		s.Apply([]delta.Delta[*pod]{put(fmt.Sprintf("a/%d", n), 0, "red")})
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			key := fmt.Sprintf("a/%d", n%100)
			s.Apply([]delta.Delta[*pod]{
				del(key, n), put(fmt.Sprintf("b/%d", n%70), n, "blue"), put(key, n, []string{"red", "blue"}[n%2]),
			})
		}
	})
	for range 50 {
		x := store.NewIndex(s, "label", byLabel)
		snap := s.Snapshot()
		var want []string
		for key, p := range snap.All() {
			if slices.Contains(p.Labels, "red") {
				want = append(want, key)
			}
		}
		expect.Equal(t, slices.Collect(x.Keys(snap, "red")), want)
		x.Remove()
	}
	close(done)
	wg.Wait()
}
