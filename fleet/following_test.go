// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/wire"
)

// subscriber follows a view, stops, and resumes at its last position.
type subscriber struct {
	w        *world
	view     *View[*wire.Object]
	follower *Follower[*wire.Object] // nil while it does not follow
	known    map[Key]uint64
	// position is the revision of known. began is the revision of the collection when the
	// subscriber last began to follow.
	position, began            uint64
	resumed, expired, survived int
	// cuts is how often clusters have come or gone, and cut is its value at the last
	// read.
	cuts *int
	cut  int
}

func (s *subscriber) truth() map[Key]uint64 {
	all := map[Key]uint64{}
	for key, v := range s.w.truth {
		if s.view.clusters.Has(key.Cluster) {
			all[key] = v
		}
	}
	return all
}

func (s *subscriber) start() {
	var now Snapshot[*wire.Object]
	now, s.follower = s.view.Follow()
	s.known = map[Key]uint64{}
	for name, state := range now.States() {
		for key, o := range state.Raw() {
			s.known[Key{name, key}] = o.Version()
		}
	}
	s.position, s.began, s.cut = now.Revision(), now.Revision(), *s.cuts
	if s.follower.Position() != s.position {
		s.w.t.Errorf("the state is at %d, the follower at %d", s.position, s.follower.Position())
	}
}

func (s *subscriber) resume() {
	var err error
	s.began = s.w.c.Newest(nil).Revision()
	if s.follower, err = s.view.FollowAfter(s.position, false); err == nil {
		s.resumed++
		return
	}
	if after := s.w.c.Log().Stats().After; !errors.Is(err, fanout.ErrExpired) || s.position >= after {
		s.w.t.Errorf("after %d: %v, the log has what is after %d", s.position, err, after)
	}
	s.expired++
	s.start()
}

// read reads n batches, or all if n is negative, and compares when it has caught up.
func (s *subscriber) read(n int) {
	if s.follower == nil {
		s.resume()
	}
	for ; n != 0; n-- {
		at := s.follower.Position()
		changes, err := s.follower.TryNext()
		switch {
		case errors.Is(err, fanout.ErrExpired):
			if at >= s.began {
				s.w.t.Errorf("a follower that was at %d when the collection was at %d received %v at %d", s.began,
					s.began, err, at)
			}
			s.expired++
			s.start()
			continue
		case err != nil:
			s.w.t.Fatal(err)
		case changes == nil:
			if truth := s.truth(); !maps.Equal(s.known, truth) {
				s.w.t.Errorf("a follower of %v at %d knows %v, there is %v", s.view.clusters, s.follower.Position(),
					s.known, truth)
			}
			s.position = s.follower.Position()
			if *s.cuts > s.cut {
				s.survived++
			}
			s.cut = *s.cuts
			return
		}
		s.learn(changes)
		s.position = s.follower.Position()
	}
}

func (s *subscriber) learn(changes iter.Seq[Change[*wire.Object]]) {
	for c := range changes {
		_, now := c.Raw()
		s.known[c.Key] = now.Version()
		if c.Type == delta.Deleted {
			delete(s.known, c.Key)
		}
		if !s.view.clusters.Has(c.Key.Cluster) {
			s.w.t.Errorf("a follower of %v received a change of %v", s.view.clusters, c.Key)
		}
	}
}

// TestFollower_goesOn has followers stop anywhere and resume at their revision, while
// clusters come, go and are replaced.
func TestFollower_goesOn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var resumed, expired, survived int
	for run := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, run))
		w := newWorld(t, []int64{1 << 20, 1 << 20, 3000}[rng.IntN(3)])
		w.c.Keep = []int{1, 5, 40, 1000}[rng.IntN(4)]
		names, clusters := []string{"a", "b", "c", "d"}, []string{"eu", "us", "za"}
		var all []*subscriber
		cuts := 0
		for _, some := range [][]string{nil, {"eu"}, {"us", "za"}, {"za"}} {
			s := &subscriber{w: w, cuts: &cuts, view: OfResource[*wire.Object](w.fleet, w.c.Resource())}
			if some != nil {
				s.view = s.view.In(some...)
			}
			s.start()
			all = append(all, s)
		}
		for range 250 {
			s, cluster := all[rng.IntN(len(all))], clusters[rng.IntN(len(clusters))]
			switch n := rng.IntN(100); {
			case n < 25:
				s.read(1 + rng.IntN(3))
			case n < 35:
				s.read(-1)
			case n < 50:
				s.follower = nil
			case w.mirrors[cluster] == nil || n < 53:
				if n < 60 {
					w.join(cluster, names[:rng.IntN(len(names))]...)
					cuts++
				}
			case n < 55:
				w.leave(cluster)
				cuts++
			case n < 65:
				w.delete(cluster, names[rng.IntN(len(names))])
			default:
				w.put(cluster, names[rng.IntN(len(names))])
			}
		}
		for _, s := range all {
			s.read(-1)
			resumed, expired, survived = resumed+s.resumed, expired+s.expired, survived+s.survived
		}
		w.close()
		if t.Failed() {
			t.Fatalf("in run %d of seed %d", run, seed)
		}
	}
	t.Logf("followers went on %d times, and began again %d times; %d times they received clusters that had joined or "+
		"left", resumed, expired, survived)
	if resumed < 300 || expired < 100 || survived < 300 {
		t.Error("hardly a test")
	}
}

// TestFollower_survivesWhatItHasCaughtUpWith follows a cluster without changes: the
// follower has caught up with the collection when a cluster joins.
func TestFollower_survivesWhatItHasCaughtUpWith(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	w.join("eu", "a")
	w.join("us", "a")
	revision := w.c.Newest(nil).Revision()
	for range 3 {
		w.put("us", "a")
	}
	view := OfResource[*wire.Object](w.fleet, w.c.Resource())
	in := func(cluster string) *Follower[*wire.Object] {
		f, err := view.In(cluster).FollowAfter(revision, false)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	quiet, slow := in("eu"), in("us")
	if changes, err := quiet.TryNext(); changes != nil || err != nil {
		t.Errorf("there is something in eu: %v", err)
	}
	w.join("eu", "a", "b")
	changes, err := quiet.TryNext()
	if err != nil {
		t.Fatalf("a follower that has caught up received %v", err)
	}
	n := 0
	for c := range changes {
		n++
		if c.Key.Cluster != "eu" || c.Key.Object == "n/b" && c.Type != delta.Added {
			t.Errorf("%s of %s", c.Type, c.Key)
		}
	}
	if n != 2 {
		t.Errorf("received %d changes, not those of a and b", n)
	}
	if _, err := slow.TryNext(); !errors.Is(err, fanout.ErrExpired) {
		t.Errorf("a follower that has not caught up received %v", err)
	}
	if _, err := slow.Next(t.Context()); !errors.Is(err, fanout.ErrExpired) {
		t.Errorf("a follower that has not caught up received %v", err)
	}
}

func TestFollower_knowsItsRevisions(t *testing.T) {
	before := microseconds()
	w := newWorld(t, 1<<20)
	defer w.close()
	view := OfResource[*wire.Object](w.fleet, w.c.Resource())
	first := view.Snapshot().Revision()
	if first>>collection.SlotBits < before || first>>collection.SlotBits > microseconds() || first > math.MaxInt64 {
		t.Errorf("revisions begin at %d, not at the time, %d", first, before)
	}
	w.join("eu", "a")
	now := view.Snapshot().Revision()
	for _, r := range []uint64{0, first - 1, first, now + 1, now + 1_000_000} {
		if _, err := view.FollowAfter(r, false); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("after revision %d of %d: %v", r, now, err)
		}
	}
	f, err := view.FollowAfter(now, false)
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := f.TryNext(); changes != nil || err != nil {
		t.Errorf("nothing has changed, and there is something: %v", err)
	}
	w.put("eu", "b")
	changes, err := f.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := view.Snapshot().Revision()
	for c := range changes {
		if c.Key != (Key{"eu", "n/b"}) || c.Type != delta.Added || c.Revision != last {
			t.Errorf("%s of %s at %d", c.Type, c.Key, c.Revision)
		}
	}
	if f.Position() != last || last <= now {
		t.Errorf("the position is %d after a change at %d, after %d", f.Position(), last, now)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the context is %v", err)
	}
	var names []string
	for name, state := range view.Snapshot().States() {
		names = append(names, name)
		if state.Len() != 2 {
			t.Errorf("%s has %d objects", name, state.Len())
		}
	}
	if !slices.Equal(names, []string{"eu"}) {
		t.Errorf("there are states of %v", names)
	}
	w.c.Log().Close()
	if _, err := f.Next(t.Context()); !errors.Is(err, fanout.ErrClosed) {
		t.Errorf("the end of the run is %v", err)
	}
}
