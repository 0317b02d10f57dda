// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/store"
)

// TestReaders_seeAllThatConcernsThemInOrder publishes random changes beside hundreds of
// readers of random interests and speeds. Each must get exactly the matching changes, in
// order, or [fanout.ErrExpired] if it was too slow. It then starts again from the current
// position of the log.
func TestReaders_seeAllThatConcernsThemInOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const total = 20_000
	all := make([]store.Change[*pod], total)
	for i := range all {
		all[i] = added(uint64(i+1), fmt.Sprintf("n%d/p%d", rng.IntN(20), rng.IntN(5)), fmt.Sprint("l", rng.IntN(50)))
	}
	l := fanout.New(&fanout.Options[*pod]{Count: 2000, Dimensions: []fanout.Dimension[*pod]{labels}})

	var wg sync.WaitGroup
	for n := range 400 {
		var interest fanout.Interest
		var matches func(store.Change[*pod]) bool
		switch n % 4 {
		case 0:
			interest, matches = fanout.Everything(), func(store.Change[*pod]) bool { return true }
		case 1:
			ns := fmt.Sprint("n", rng.IntN(25))
			interest, matches = fanout.Namespace(ns), func(c store.Change[*pod]) bool {
				return c.Key[:len(ns)+1] == ns+"/"
			}
		case 2:
			key := fmt.Sprintf("n%d/p%d", rng.IntN(20), rng.IntN(7))
			interest, matches = fanout.Key(key), func(c store.Change[*pod]) bool { return c.Key == key }
		case 3:
			label := fmt.Sprint("l", rng.IntN(60))
			interest, matches = fanout.In("label", label), func(c store.Change[*pod]) bool {
				return c.New.labels[0] == label
			}
		}
		wg.Go(func() { readAll(t, l, interest, matches, all) })
	}
	for i := 0; i < total; {
		n := min(1+rng.IntN(30), total-i)
		l.Publish(all[i : i+n])
		i += n
	}
	l.Close()
	wg.Wait()
	s := l.Stats()
	t.Logf("%d times a reader was too slow", s.Expired)
	expect.Equal(t, s.Waiting, 0)
}

// readAll reads until the log is closed and compares the result with the published
// changes.
func readAll(
	t *testing.T, l *fanout.Log[*pod], interest fanout.Interest, matches func(store.Change[*pod]) bool,
	all []store.Change[*pod],
) {
	var from uint64
	for {
		c, err := l.Cursor(from, interest)
		if err != nil {
			t.Error(err)
			return
		}
		var got []uint64
		for err == nil {
			var batch []store.Change[*pod]
			batch, err = c.Next(t.Context())
			got = append(got, revisions(batch)...)
		}
		var want []uint64
		for _, change := range all[from:c.Position()] {
			if matches(change) {
				want = append(want, change.Revision)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("reader of %s from %d to %d got %d changes, want %d", interest, from, c.Position(), len(got),
				len(want))
			return
		}
		if errors.Is(err, fanout.ErrClosed) {
			if c.Position() != uint64(len(all)) {
				t.Errorf("reader of %s ended at %d of %d", interest, c.Position(), len(all))
			}
			return
		}
		if !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("reader of %s: %v", interest, err)
			return
		}
		from = l.Stats().Last
	}
}
