// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/store"
)

// newLabelled returns a store whose attributes are labels of the form name=value, and the
// number of times that an attribute was read, 0 if the store checks itself.
func newLabelled() (*store.Store[*pod], *atomic.Int64) {
	reads := new(atomic.Int64)
	return store.New(podKey, &store.Options[*pod]{Attribute: func(p *pod, name string) (string, bool) {
		if !store.Invariants {
			reads.Add(1)
		}
		return attribute(p, name)
	}}), reads
}

func attribute(p *pod, name string) (string, bool) {
	for _, label := range p.Labels {
		if key, value, _ := strings.Cut(label, "="); key == name {
			return value, true
		}
	}
	return "", false
}

// having returns the keys of the snapshot that Having should find.
func having(s *store.Snapshot[*pod], name string, values []string, prefix, after string) (found []string) {
	for key, p := range s.Range(prefix, after) {
		if value, ok := attribute(p, name); ok && slices.Contains(values, value) {
			found = append(found, key)
		}
	}
	return found
}

// fill stores pods that have a label app with 50 values and a label tier that is the same
// for all.
func fill(s *store.Store[*pod], n int) {
	var ds []delta.Delta[*pod]
	for i := range n {
		ds = append(ds, put(fmt.Sprintf("%c/%04d", 'a'+i%3, i), 1, fmt.Sprint("app=", i%50), "tier=web"))
	}
	s.Apply(ds)
}

// TestHaving makes a column at the second request, finds few objects, and says of many
// that they are not few.
func TestHaving(t *testing.T) {
	s, reads := newLabelled()
	fill(s, 1000)
	old := s.Snapshot()
	for i := range 2 {
		if _, few := s.Snapshot().Having("app", []string{"7"}, "", ""); few {
			t.Errorf("request %d found a column", i)
		}
		if got := reads.Load(); got != int64(i)*1000 && !store.Invariants {
			t.Errorf("after request %d the attribute was read %d times, want %d", i, got, i*1000)
		}
	}
	reads.Store(0)
	now := s.Snapshot()
	for _, test := range []struct {
		values        []string
		prefix, after string
	}{
		{[]string{"7"}, "", ""},
		{[]string{"7", "8"}, "", ""},
		{[]string{"7"}, "b/", ""},
		{[]string{"7"}, "b/", "b/0300"},
		{[]string{"7"}, "", "b/0300"},
		{[]string{"none"}, "", ""},
		{[]string{"7"}, "none/", ""},
	} {
		found, few := now.Having("app", test.values, test.prefix, test.after)
		if !few {
			t.Fatalf("%v: not few", test)
		}
		expect.Equal(t, keys(found), append([]string{}, having(now, "app", test.values, test.prefix, test.after)...))
	}
	if got := reads.Load(); got > 200 {
		t.Errorf("the attribute was read %d times", got)
	}
	found, few := old.Having("app", []string{"7"}, "", "")
	if !few {
		t.Error("a snapshot from before the column does not use it, although nothing has changed")
	}
	expect.Equal(t, keys(found), having(old, "app", []string{"7"}, "", ""))
	for range 3 {
		if _, few := s.Snapshot().Having("tier", []string{"web"}, "", ""); few {
			t.Error("all objects are few")
		}
	}
	_, indexes := s.Snapshot().Size()
	expect.Equal(t, indexes, 9000)
	s.Apply([]delta.Delta[*pod]{put("a/0000", 2, "app=7", "tier=web")})
	if _, few := old.Having("app", []string{"7"}, "", ""); few {
		t.Error("a snapshot from before a change uses the column after it")
	}
}

// TestHaving_columnsAreDropped drops a column that is written and not read, and the least
// recently read ones if there are many.
func TestHaving_columnsAreDropped(t *testing.T) {
	s, reads := newLabelled()
	fill(s, 1000)
	ask := func(name string) bool {
		_, few := s.Snapshot().Having(name, []string{"7"}, "", "")
		return few
	}
	for i := range 20 {
		for range 2 {
			ask(fmt.Sprint("label", i))
		}
		ask("label0")
	}
	for i, want := range []bool{true, false} {
		if got := ask(fmt.Sprint("label", i)); got != want {
			t.Errorf("label%d has a column: %v, want %v", i, got, want)
		}
	}
	if _, size := s.Snapshot().Size(); size != 8*4500 {
		t.Errorf("the columns have %d bytes, want those of 8", size)
	}
	for range 6 {
		fill(s, 1000)
		ask("label0")
	}
	reads.Store(0)
	fill(s, 1000)
	if got := reads.Load(); got != 1000 && !store.Invariants {
		t.Errorf("the attributes of 1000 new states were read %d times, as if more than one column were left", got)
	}
	if !ask("label0") {
		t.Error("a column that was read is gone")
	}
}

// TestHaving_small makes no column in a small store, or without attributes.
func TestHaving_small(t *testing.T) {
	s, reads := newLabelled()
	fill(s, 400)
	none := store.New(podKey, nil)
	fill(none, 1000)
	for range 3 {
		if _, few := s.Snapshot().Having("app", []string{"7"}, "", ""); few || reads.Load() > 0 {
			t.Error("a small store has a column")
		}
		if _, few := none.Snapshot().Having("app", []string{"7"}, "", ""); few {
			t.Error("a store without attributes has a column")
		}
	}
}

// TestHaving_random compares Having with a walk of the same snapshot, while objects come,
// go and change their labels, and columns come and go.
func TestHaving_random(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, _ := newLabelled()
	fill(s, 1200)
	done := make(chan struct{})
	var found atomic.Int64
	var wg sync.WaitGroup
	for n := range 2 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		wg.Go(func() {
			for kept := s.Snapshot(); ; {
				snap := s.Snapshot()
				if r.IntN(2) == 0 {
					snap, kept = kept, snap
				}
				name, values := []string{"app", "tier", "zone"}[r.IntN(3)],
					[]string{fmt.Sprint(r.IntN(60)), fmt.Sprint(r.IntN(60))}[:1+r.IntN(2)]
				prefix, after := []string{"", "", "a/", "c/"}[r.IntN(4)], []string{"", "", "a/05", "c/0100"}[r.IntN(4)]
				objects, few := snap.Having(name, values, prefix, after)
				if few {
					found.Add(1)
					if got, want := keys(objects), having(snap, name, values, prefix, after); !slices.Equal(got, want) {
						t.Errorf("revision %d, %s in %v, prefix %q after %q: %v, want %v", snap.Revision(), name,
							values, prefix, after, got, want)
						return
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	batches := 3000
	if store.Invariants {
		batches = 200
	}
	r := rand.New(rand.NewPCG(seed, 9))
	for i := range batches {
		var ds []delta.Delta[*pod]
		for range 1 + r.IntN(10) {
			key := fmt.Sprintf("%c/%04d", 'a'+r.IntN(3), r.IntN(600))
			if r.IntN(3) == 0 {
				ds = append(ds, del(key, i))
			} else {
				ds = append(ds, put(key, i, fmt.Sprint("app=", r.IntN(60)), fmt.Sprint("zone=", r.IntN(2000))))
			}
		}
		s.Apply(ds)
	}
	close(done)
	wg.Wait()
	if found.Load() == 0 {
		t.Error("no column was read")
	}
}
