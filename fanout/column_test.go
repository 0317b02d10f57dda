// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/store"
)

// openLabel opens dimensions named "label 0", "label 1"…: in each, the value of an object
// is its label at that index. An empty label is [fanout.AnyValue].
func openLabel(name string) (d fanout.Dimension[*pod], ok bool) {
	place := 0
	if n, err := fmt.Sscanf(name, "label %d", &place); n != 1 || err != nil {
		return d, false
	}
	d.Value = func(p *pod) fanout.Value {
		if p.labels[place] == "" {
			return fanout.AnyValue
		}
		return fanout.ValueOf(p.labels[place])
	}
	return d, true
}

func TestOpen_addsDimensions(t *testing.T) {
	l := fanout.New(&fanout.Options[*pod]{Open: openLabel})
	publish(l,
		added(1, "a/1", "red", "x"),
		change(2, "a/2", []string{"red", "x"}, []string{"blue", "x"}),
		change(3, "b/1", []string{"blue", "x"}, []string{"blue", "y"}),
		store.Change[*pod]{Type: delta.Deleted, Key: "b/2", Old: &pod{[]string{"red", "y"}}, Revision: 4},
		added(5, "b/2", "green", ""),
	)
	for _, test := range []struct {
		interest fanout.Interest
		want     []uint64
	}{
		{fanout.In("label 0", "red"), []uint64{1, 2, 4}},
		{fanout.In("label 0", "blue"), []uint64{2, 3}},
		{fanout.In("label 0", "none"), nil},
		{fanout.In("label 1", "y"), []uint64{3, 4, 5}},
		{fanout.In("label 1", "none"), []uint64{5}},
	} {
		for range 2 { // the second reader uses the stored values
			expect.Equal(t, rest(t, cursor(t, l, 0, test.interest)), test.want)
		}
	}
	if _, err := l.Cursor(0, fanout.In("other", "x")); !errors.Is(err, fanout.ErrNoDimension) {
		t.Errorf("a dimension that is not opened: %v, want ErrNoDimension", err)
	}
}

func TestOpen_isBounded(t *testing.T) {
	l := fanout.New(&fanout.Options[*pod]{Open: openLabel})
	for range 2 {
		for i := range 64 {
			cursor(t, l, 0, fanout.In(fmt.Sprint("label ", i), "x"))
		}
	}
	if _, err := l.Cursor(0, fanout.In("label 64", "x")); !errors.Is(err, fanout.ErrNoDimension) {
		t.Errorf("a dimension beyond the bound: %v, want ErrNoDimension", err)
	}
}

func TestLap_returnsWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fanout.New(&fanout.Options[*pod]{Open: openLabel})
		c := cursor(t, l, 0, fanout.In("label 0", "red"))
		c.Lap(3)
		returned := make(chan []uint64, 1)
		wait := func() {
			go func() {
				batch, err := c.Next(t.Context())
				if err != nil {
					t.Error(err)
				}
				returned <- revisions(batch)
			}()
			synctest.Wait()
		}
		wait()
		for _, r := range []uint64{1000, 2000, 3000} { // revisions may have gaps
			if len(returned) > 0 {
				t.Errorf("it has returned before revision %d", r)
			}
			publish(l, added(r, "a/1", "blue"))
			synctest.Wait()
		}
		expect.Equal(t, <-returned, nil)
		expect.Equal(t, c.Position(), uint64(3000))
		expect.Equal(t, l.Stats().Waiting, 0)
		wait()
		publish(l, added(4000, "a/1", "red"), added(5000, "a/1", "blue"), added(6000, "a/1", "blue"))
		expect.Equal(t, <-returned, []uint64{4000})
	})
}

// TestColumns_missNothing publishes random histories, in which objects move between
// values, beside readers that open dimensions and begin at random times and positions.
// Each reader must get exactly the changes whose old or new state has its value.
func TestColumns_missNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for run := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, run))
		all := randomChanges(rng, 1500)
		l := fanout.New(&fanout.Options[*pod]{Open: openLabel})
		var readers sync.WaitGroup
		begun := 0
		begin := func(published int) {
			begun++
			place, value := rng.IntN(3), fmt.Sprint("v", rng.IntN(12))
			from := uint64(rng.IntN(published + 1))
			interest := fanout.In(fmt.Sprint("label ", place), value)
			c, err := l.Cursor(from, interest)
			if err != nil {
				t.Fatal(err)
			}
			readers.Go(func() {
				var got, want []uint64
				for _, change := range all[from:] {
					if concerns(change, place, value) {
						want = append(want, change.Revision)
					}
				}
				for {
					batch, err := c.Next(context.Background())
					if err != nil {
						break // the log is closed
					}
					got = append(got, revisions(batch)...)
				}
				if !slices.Equal(got, want) || c.Position() != uint64(len(all)) {
					t.Errorf("run %d: reader of %s from %d on got %v up to %d, want %v", run, interest, from, got,
						c.Position(), want)
				}
			})
		}
		for i := 0; i < len(all); {
			if rng.IntN(10) == 0 {
				begin(i)
			}
			n := min(1+rng.IntN(100), len(all)-i)
			if rng.IntN(2) == 0 {
				n = 1
			}
			for all := rng.IntN(5) > 0; all && l.Stats().Waiting < begun; {
				runtime.Gosched() // most changes find all readers waiting
			}
			l.Publish(all[i : i+n])
			i += n
		}
		l.Close()
		readers.Wait()
		if t.Failed() {
			return
		}
	}
}

func randomChanges(rng *rand.Rand, n int) []store.Change[*pod] {
	state := map[string]*pod{}
	all := make([]store.Change[*pod], n)
	for i := range all {
		key := fmt.Sprintf("n%d/p%d", rng.IntN(4), rng.IntN(10))
		c := store.Change[*pod]{Type: delta.Updated, Key: key, Old: state[key], New: &pod{}, Revision: uint64(i + 1)}
		for range 3 {
			value := fmt.Sprint("v", rng.IntN(12))
			if rng.IntN(200) == 0 {
				value = "" // AnyValue
			}
			c.New.labels = append(c.New.labels, value)
		}
		switch {
		case c.Old == nil:
			c.Type = delta.Added
		case rng.IntN(5) == 0:
			c.Type, c.New = delta.Deleted, c.Old
		}
		state[key] = c.New
		if c.Type == delta.Deleted {
			delete(state, key)
		}
		all[i] = c
	}
	return all
}

func concerns(c store.Change[*pod], place int, value string) bool {
	has := func(p *pod) bool { return p.labels[place] == value || p.labels[place] == "" }
	return c.Type != delta.Added && has(c.Old) || c.Type != delta.Deleted && has(c.New)
}

// BenchmarkPublish_besideReadersOfOtherValues measures the cost of a change for each
// reader that waits for another value.
func BenchmarkPublish_besideReadersOfOtherValues(b *testing.B) {
	for _, readers := range []int{0, 100, 5000} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			l := fanout.New(&fanout.Options[*pod]{Open: openLabel, Dimensions: []fanout.Dimension[*pod]{labels}})
			ctx, cancel := context.WithCancel(b.Context())
			var waiting sync.WaitGroup
			for i := range readers {
				c, err := l.Cursor(0, fanout.In("label 0", fmt.Sprint("other", i)))
				if err != nil {
					b.Fatal(err)
				}
				waiting.Go(func() { _, _ = c.Next(ctx) })
			}
			for l.Stats().Waiting < readers {
				continue
			}
			old, now := &pod{[]string{"red"}}, &pod{[]string{"blue"}}
			revision, one := uint64(0), make([]store.Change[*pod], 1)
			for b.Loop() {
				revision++
				one[0] = store.Change[*pod]{Type: delta.Updated, Key: "a/1", Old: old, New: now, Revision: revision}
				l.Publish(one)
			}
			if readers > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(readers), "ns/change/reader")
			}
			cancel()
			waiting.Wait()
		})
	}
}
