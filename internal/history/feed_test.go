// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// TestFeed_resumes has clients stop anywhere and resume, over histories in which the
// mirror relists now and then. In the end each client has the current state.
func TestFeed_resumes(t *testing.T) {
	// With the first seed, a client sees one of two changes with the same version, which
	// leaves the log before a list skips the next versions.
	for _, seed := range []uint64{2991738746311918583, rand.Uint64()} {
		resumeClients(t, seed)
	}
}

func resumeClients(t *testing.T, seed uint64) {
	t.Helper()
	t.Logf("seed %d", seed)
	var resumed, expired, lists int
	for run := range uint64(60) {
		t.Run("", func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, run))
			u := newUpstream(t, rng, []int64{1 << 20, 1 << 20, 20_000, 2000}[rng.IntN(4)])
			clients := make([]*client, 4)
			for i := range clients {
				clients[i] = &client{u: u}
				clients[i].list()
			}
			for range 150 {
				c := clients[rng.IntN(len(clients))]
				switch n := rng.IntN(20); {
				case n < 6:
					u.happen()
				case n < 10:
					u.deliver()
				case n < 11:
					u.relist()
				case n < 14:
					u.flush()
				case n < 15:
					c.cursor = nil
				case n < 18:
					c.read(1 + rng.IntN(5))
				default:
					u.visit()
				}
			}
			u.flush()
			for _, c := range clients {
				c.cursor = nil
				c.read(-1)
				resumed, expired = resumed+c.resumed, expired+c.expired
			}
			lists += u.lists
			if t.Failed() {
				t.Logf("run %d of seed %d, gaps %v", run, seed, u.gaps)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("clients went on %d times, and began again %d times; %d lists", resumed, expired, lists)
	if resumed < 100 || expired < 30 || lists < 100 {
		t.Error("hardly a test")
	}
}

// The functions below return deltas of a server.
func updated(o *wire.Object) delta.Delta[*wire.Object] {
	return delta.Delta[*wire.Object]{Type: delta.Updated, Key: o.Key(), Object: o, Version: o.Version()}
}

func deleted(o *wire.Object) delta.Delta[*wire.Object] {
	return delta.Delta[*wire.Object]{Type: delta.Deleted, Key: o.Key(), Object: o, Version: o.Version()}
}

func replaced(o *wire.Object) delta.Delta[*wire.Object] {
	return delta.Delta[*wire.Object]{Type: delta.Replaced, Listed: true, Key: o.Key(), Object: o, Version: o.Version()}
}

func missing(o *wire.Object, version uint64) delta.Delta[*wire.Object] {
	return delta.Delta[*wire.Object]{
		Type: delta.Deleted, Missed: true, Listed: true, Key: o.Key(), Object: o, Version: version,
	}
}

func reached(version uint64) delta.Delta[*wire.Object] {
	return delta.Delta[*wire.Object]{Type: delta.Bookmark, Version: version}
}

// listed ends a list that began with replaced or missing.
func listed(version uint64) delta.Delta[*wire.Object] {
	return delta.Delta[*wire.Object]{Type: delta.Bookmark, Listed: true, Version: version}
}

func moment(t *testing.T, f *Feed) *Moment {
	t.Helper()
	m, err := f.Now()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func feedCursor(t *testing.T, f *Feed, revision uint64, interest fanout.Interest) *fanout.Cursor[*wire.Object] {
	t.Helper()
	c, err := f.Cursor(revision, interest)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// received returns the changes of a cursor, without waiting.
func received(t *testing.T, c *fanout.Cursor[*wire.Object]) (all []string) {
	t.Helper()
	for {
		batch, err := c.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return all
		}
		for _, c := range batch {
			all = append(all, fmt.Sprintf("%d %s %s", c.Version, c.Type, c.Key))
		}
	}
}

// TestFeed_tellsAListAtOnce checks that readers see the state before a list while it is
// read, and then all its differences in order.
func TestFeed_tellsAListAtOnce(t *testing.T) {
	f, i := newTestFeed(t, 64<<20)
	plain := func(name string, version uint64) *wire.Object { return newPod(t, name, version, nil) }
	a, b, c, d := plain("a", 3), plain("b", 4), plain("c", 5), plain("d", 6)
	i.Write(updated(a), updated(b), updated(c), updated(d), reached(10))
	before := moment(t, f)
	cursor := feedCursor(t, f, before.Revision, fanout.Everything())
	b, e := plain("b", 15), plain("e", 12)
	again := newPod(t, "a", 3, map[string]string{"render": "2"})
	for _, batch := range [][]delta.Delta[*wire.Object]{
		{replaced(plain("d", 13)), replaced(plain("g", 14))}, // an interrupted list
		{replaced(again), replaced(b)},
		{replaced(e)},
		{missing(c, 20)},
	} {
		i.Write(batch...)
		if now := moment(t, f); now != before || now.State.Len() != 4 {
			t.Errorf("while the list is read the feed is at %d", now.Version)
		}
		if got := received(t, cursor); got != nil {
			t.Errorf("while the list is read a reader received %v", got)
		}
	}
	i.Write(missing(plain("d", 13), 20), missing(plain("g", 14), 20), listed(20), updated(plain("f", 21)))
	want := []string{
		"10 Deleted n/d", "10 Updated n/a", "10 Deleted n/c", "12 Added n/e", "15 Updated n/b", "21 Added n/f",
	}
	if got := received(t, cursor); !slices.Equal(got, want) {
		t.Errorf("a reader received %v, want %v", got, want)
	}
	for v, n := range map[uint64]int{10: 6, 20: 1, 21: 0} {
		revision, _, err := f.Since(v)
		if err != nil {
			t.Errorf("after version %d: %v", v, err)
			continue
		}
		if got := received(t, feedCursor(t, f, revision, fanout.Everything())); !slices.Equal(got, want[6-n:]) {
			t.Errorf("after version %d a reader received %v", v, got)
		}
	}
	for _, v := range []uint64{11, 15, 19} { // the states at these versions are unknown
		if _, oldest, err := f.Since(v); !errors.Is(err, ErrExpired) || oldest != 20 {
			t.Errorf("after version %d: %v, the oldest is %d", v, err, oldest)
		}
	}
}

// TestFeed_boundsItsGaps relists a resource many times.
func TestFeed_boundsItsGaps(t *testing.T) {
	f, i := newTestFeed(t, 64<<20)
	i.Write(updated(newPod(t, "a", 2, nil)))
	for v := uint64(10); v <= 1000; v += 10 {
		i.Write(replaced(newPod(t, "a", 2, nil)), listed(v))
	}
	if len(f.coverage.gaps) != mostGaps {
		t.Errorf("%d gaps are kept", len(f.coverage.gaps))
	}
	first := uint64(1000 - 10*mostGaps)
	for v := uint64(2); v <= 1000; v++ {
		_, _, err := f.Since(v)
		if known := v >= first && v%10 == 0; known != (err == nil) {
			t.Errorf("after version %d: %v, the first that is known is %d", v, err, first)
		}
	}
}

// TestFeed_noticesARestore has versions decrease: no reader continues from before.
func TestFeed_noticesARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, i := newTestFeed(t, 64<<20)
		i.Write(updated(newPod(t, "a", 30, nil)), updated(newPod(t, "b", 40, nil)), reached(50))
		behind := feedCursor(t, f, 0, fanout.Everything())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waiting := []fanout.Interest{fanout.Everything(), fanout.Key("n/a"), fanout.In(objectlog.ByLabel, "app")}
		errs := make(chan error, len(waiting))
		for _, interest := range waiting {
			c := feedCursor(t, f, moment(t, f).Revision, interest)
			go func() {
				_, err := c.Next(ctx)
				errs <- err
			}()
		}
		synctest.Wait()
		restored := replaced(newPod(t, "a", 8, nil))
		restored.Missed = true
		end := listed(20)
		end.Missed = true
		i.Write(restored, missing(newPod(t, "b", 40, nil), 20))
		if v := moment(t, f).Version; v != 50 {
			t.Errorf("before the list is complete the version is %d", v)
		}
		i.Write(end)
		synctest.Wait()
		if len(errs) != len(waiting) {
			t.Errorf("%d of %d waiting readers were woken", len(errs), len(waiting))
		}
		for range len(errs) {
			if err := <-errs; !errors.Is(err, ErrExpired) {
				t.Errorf("a waiting reader received %v", err)
			}
		}
		if _, err := behind.TryNext(); !errors.Is(err, ErrExpired) {
			t.Errorf("a reader that is behind received %v", err)
		}
		now := moment(t, f)
		if o, ok := now.State.Get("n/a"); now.Version != 20 || now.State.Len() != 1 || !ok || o.Version() != 8 {
			t.Errorf("%d objects at version %d", now.State.Len(), now.Version)
		}
		if _, oldest, err := f.Since(15); !errors.Is(err, ErrExpired) || oldest != 20 {
			t.Errorf("after version 15: %v, the oldest is %d", err, oldest)
		}
		if _, err := f.At(15); !errors.Is(err, ErrExpired) {
			t.Errorf("at version 15: %v", err)
		}
		cursor := feedCursor(t, f, now.Revision, fanout.Everything())
		i.Write(updated(newPod(t, "c", 22, nil)))
		if got := received(t, cursor); !slices.Equal(got, []string{"22 Added n/c"}) {
			t.Errorf("after the restore a reader received %v", got)
		}
	})
}

// TestFeed_noticesARestoreThatHasPassed has a restored server pass the last version
// before its state is read: it is another history all the same.
func TestFeed_noticesARestoreThatHasPassed(t *testing.T) {
	f, i := newTestFeed(t, 64<<20)
	i.Write(updated(newPod(t, "a", 30, nil)), updated(newPod(t, "b", 40, nil)))
	cursor := feedCursor(t, f, moment(t, f).Revision, fanout.Everything())
	restored, end := replaced(newPod(t, "a", 38, nil)), listed(42)
	restored.Missed, end.Missed = true, true
	i.Write(restored, missing(newPod(t, "b", 40, nil), 42), end)
	if _, err := cursor.TryNext(); !errors.Is(err, ErrExpired) {
		t.Errorf("a reader from before received %v", err)
	}
	for version, want := range map[uint64]error{
		30: ErrExpired, 40: ErrExpired, 41: ErrExpired, 42: nil, 43: ErrFuture,
	} {
		if _, _, err := f.Since(version); !errors.Is(err, want) {
			t.Errorf("after version %d: %v, want %v", version, err, want)
		}
	}
}

func TestFeed_waitsForAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, i := newTestFeed(t, 64<<20)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got *Moment
		var after time.Duration
		wait := func(version uint64) {
			began := time.Now()
			got = nil
			go func() {
				m, err := f.Wait(ctx, version)
				if err != nil && !errors.Is(err, ErrFuture) || (err == nil) != (m.Version >= version) {
					t.Errorf("wait for version %d: %d, %v", version, m.Version, err)
				}
				got, after = m, time.Since(began)
			}()
			synctest.Wait()
		}
		check := func(version uint64) {
			t.Helper()
			synctest.Wait()
			if version == 0 && got != nil || version != 0 && (got == nil || got.Version != version) {
				t.Errorf("got %+v, want version %d", got, version)
			}
		}
		wait(1)
		check(1)
		wait(15)
		i.Write(updated(newPod(t, "a", 12, nil)))
		check(0)
		time.Sleep(time.Second)
		i.Write(reached(15)) // a bookmark, without a change
		check(15)
		if after != time.Second {
			t.Errorf("waited for %v", after)
		}
		wait(20)
		i.Write(replaced(newPod(t, "a", 21, nil))) // part of a list
		check(0)
		i.Write(listed(25))
		check(25)
		wait(30)
		time.Sleep(time.Minute)
		check(25) // ErrFuture, and the newest state

		unsynced := NewWriter(&kube.Resource{}, nil, 1<<20).Feed()
		if _, err := unsynced.Wait(ctx, 1); !errors.Is(err, ErrNotReady) {
			t.Errorf("before there is a state: %v", err)
		}
		if _, err := unsynced.At(1); !errors.Is(err, ErrNotReady) {
			t.Errorf("before there is a state: %v", err)
		}
	})
}

// TestFeed_wakesReadersOfALabel counts the changes that each reader receives.
func TestFeed_wakesReadersOfALabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, i := newTestFeed(t, 64<<20)
		labels := []string{"app", "app=x", "app=y", "tier=x"}
		woken := make([]atomic.Int64, len(labels))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		for n, label := range labels {
			c := feedCursor(t, f, moment(t, f).Revision, fanout.In(objectlog.ByLabel, label))
			go func() {
				defer func() { done <- struct{}{} }()
				for batch, err := c.Next(ctx); err == nil; batch, err = c.Next(ctx) {
					woken[n].Add(int64(len(batch)))
				}
			}()
		}
		app := func(value string) map[string]string { return map[string]string{"app": value} }
		for v, step := range []struct {
			d     func(version uint64) delta.Delta[*wire.Object]
			wakes []string
		}{
			{
				func(v uint64) delta.Delta[*wire.Object] { return updated(newPod(t, "a", v, app("x"))) },
				[]string{"app", "app=x"},
			},
			{func(v uint64) delta.Delta[*wire.Object] { return updated(newPod(t, "b", v, nil)) }, nil},
			{
				func(v uint64) delta.Delta[*wire.Object] { return updated(newPod(t, "a", v, app("y"))) },
				[]string{"app", "app=x", "app=y"},
			},
			{
				func(v uint64) delta.Delta[*wire.Object] { return updated(newPod(t, "a", v, nil)) },
				[]string{"app", "app=y"},
			},
			{
				func(v uint64) delta.Delta[*wire.Object] { return updated(newPod(t, "a", v, app("x"))) },
				[]string{"app", "app=x"},
			},
			{
				func(v uint64) delta.Delta[*wire.Object] { return deleted(newPod(t, "a", v, nil)) },
				[]string{"app", "app=x"},
			},
		} {
			synctest.Wait()
			i.Write(step.d(uint64(v + 10)))
			synctest.Wait()
			for n, label := range labels {
				want := int64(0)
				if slices.Contains(step.wakes, label) {
					want = 1
				}
				if got := woken[n].Swap(0); got != want {
					t.Errorf("step %d: the reader of %s received %d changes, want %d", v, label, got, want)
				}
			}
		}
		cancel()
		for range labels {
			<-done
		}
	})
}

// TestWriter_ofNothing has no history: nothing happens.
func TestWriter_ofNothing(*testing.T) {
	none := (*Writer)(nil)
	none.Close()
	none.Load(&storage.State{})
	none.Succeed(nil)
	none.Apply(watershed.Snapshot[*wire.Object]{}, []store.Change[*wire.Object]{}, true)
}
