// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package catchup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
)

type item struct {
	name    string
	version uint64
}

// feed is a store and its log. It offers a newer state after every few changes, which
// may be ahead of the reader.
type feed struct {
	store *store.Store[*item]
	log   *fanout.Log[*item]
	keep  int
}

func newFeed(window, keep int) *feed {
	return &feed{
		store: store.New(func(i *item) string { return i.name }, nil),
		log:   fanout.New(&fanout.Options[*item]{Count: window}),
		keep:  keep,
	}
}

func (f *feed) apply(d delta.Delta[*item]) {
	f.log.Publish(f.store.Apply([]delta.Delta[*item]{d}))
}

func (f *feed) Newest() *store.Snapshot[*item] { return f.store.Snapshot() }

func (f *feed) Open(revision uint64) *fanout.Cursor[*item] {
	c, _ := f.log.Cursor(revision, fanout.Everything())
	return c
}

func (*feed) Own(batch []store.Change[*item]) []store.Change[*item] { return batch }

func (f *feed) Newer(_ *store.Snapshot[*item], _ uint64, seen int, _ Occasion) *store.Snapshot[*item] {
	if seen < f.keep {
		return nil
	}
	return f.store.Snapshot()
}

func (*feed) Key(c *store.Change[*item]) Key { return Key{Object: c.Key} }

func (*feed) Get(s *store.Snapshot[*item], key Key) *item {
	i, _ := s.Get(key.Object)
	return i
}

func (*feed) Same(a, b *item) bool { return *a == *b }

func (*feed) Diff(from, to *store.Snapshot[*item]) iter.Seq[*store.Change[*item]] {
	return func(yield func(*store.Change[*item]) bool) {
		for c := range store.Diff(from, to) {
			if !yield(&c) {
				return
			}
		}
	}
}

// reader applies changes and checks that each one fits the state before it.
type reader struct {
	t        *testing.T
	known    map[string]*item
	follower Follower[*store.Snapshot[*item], *item]
}

func (r *reader) read(changes Changes[*item]) {
	for c := range changes.All {
		before := r.known[c.Key]
		switch {
		case c.Type == delta.Added && (before != nil || c.Old != nil),
			c.Type != delta.Added && (before == nil || c.Old != before):
			r.t.Errorf("%s of %s from %v, the reader has %v", c.Type, c.Key, c.Old, before)
		}
		if c.Type == delta.Deleted {
			delete(r.known, c.Key)
		} else {
			r.known[c.Key] = c.New
		}
	}
}

// TestFollower_endsWithTheNewestState reads at random beside random changes, mostly too
// slowly for the window.
func TestFollower_endsWithTheNewestState(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	differences := 0
	for run := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, run))
		f := newFeed([]int{1, 10, 200}[rng.IntN(3)], []int{1, 7, 1000}[rng.IntN(3)])
		r := &reader{t: t, known: map[string]*item{}}
		r.follower.Start(f.Newest(), f)
		for version := range uint64(400) {
			switch name := fmt.Sprint(rng.IntN(12)); rng.IntN(10) {
			case 0, 1:
				changes, err := r.follower.TryNext(f)
				if err != nil {
					t.Fatal(err)
				}
				if changes.Differences() {
					differences++
				}
				r.read(changes)
			case 2, 3:
				f.apply(delta.Delta[*item]{Type: delta.Deleted, Key: name, Version: version})
			default:
				f.apply(delta.Delta[*item]{
					Type: delta.Updated, Key: name, Object: &item{name, version}, Version: version,
				})
			}
		}
		for changes, err := r.follower.TryNext(f); !changes.None(); changes, err = r.follower.TryNext(f) {
			if err != nil {
				t.Fatal(err)
			}
			r.read(changes)
		}
		if want := maps.Collect(f.store.All()); !maps.Equal(r.known, want) {
			t.Fatalf("run %d of seed %d: the reader has %v, want %v", run, seed, r.known, want)
		}
	}
	if differences < 100 {
		t.Errorf("only %d times were changes missing from the log", differences)
	}
}

// TestFollower_afterARevision starts without a state: until the reader reaches the state
// that was the newest then, missing changes are an error, and later they are not.
func TestFollower_afterARevision(t *testing.T) {
	f := newFeed(1000, 1000)
	put := func(version uint64) {
		f.apply(delta.Delta[*item]{Type: delta.Updated, Key: "a", Object: &item{"a", version}, Version: version})
	}
	put(1)
	put(2)
	var early, late Follower[*store.Snapshot[*item], *item]
	early.StartAfter(1, f.Newest(), f)
	late.StartAfter(1, f.Newest(), f)
	if changes, err := late.Next(t.Context(), f); err != nil || changes.None() {
		t.Fatalf("the change after revision 1: %v, %v", changes, err)
	}
	put(3)
	f.log.Cut(f.Newest().Revision())
	if _, err := early.Next(t.Context(), f); !errors.Is(err, fanout.ErrExpired) {
		t.Errorf("before the reader has reached a state, missing changes are %v", err)
	}
	changes, err := late.Next(t.Context(), f)
	if err != nil || !changes.Differences() {
		t.Errorf("after it has reached a state, missing changes are %v", err)
	}
	for c := range changes.All {
		if c.Type != delta.Updated || c.Old.version != 2 || c.New.version != 3 {
			t.Errorf("%s from %v to %v, want an update from 2 to 3", c.Type, c.Old, c.New)
		}
	}
	due := make(chan struct{})
	close(due)
	if changes, err := late.NextUntil(t.Context(), due, f); err != nil || !changes.None() {
		t.Errorf("when due is closed the follower returns %v, %v", changes, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := late.Next(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the context is %v", err)
	}
}
