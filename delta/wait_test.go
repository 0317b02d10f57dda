// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
)

func TestFull_producerWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		f := delta.New(podKey, &delta.Options[pod]{Capacity: 2})
		expect.NoError(t, f.Add(ctx, pod{"pod1", 1}))
		expect.NoError(t, f.Add(ctx, pod{"pod2", 2}))
		added := false
		var wg sync.WaitGroup
		wg.Go(func() {
			expect.NoError(t, f.Add(ctx, pod{"pod3", 3}))
			added = true
		})
		synctest.Wait()
		expect.Equal(t, added, false)
		expect.Equal(t, drained(t, f), []string{"Added pod1=1, Added pod2=2"})
		wg.Wait()
		expect.Equal(t, added, true)
	})
}

func TestFull_waitEndsWithContextOrClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := delta.New(podKey, &delta.Options[pod]{Capacity: 1})
		expect.NoError(t, f.Add(t.Context(), pod{"pod1", 1}))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.Add(ctx, pod{"pod2", 2}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Add to a full queue: %v, want the context's error", err)
		}
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			// One waits for room, the other for its turn.
			wg.Go(func() { errs[i] = f.Add(t.Context(), pod{"pod3", 3}) })
		}
		synctest.Wait()
		f.Close()
		wg.Wait()
		for _, err := range errs {
			if !errors.Is(err, delta.ErrClosed) {
				t.Errorf("Add while closing: %v, want ErrClosed", err)
			}
		}
	})
}

func TestEmpty_consumerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := delta.New(podKey, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.Pop(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Pop of an empty queue: %v, want the context's error", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			expect.Equal(t, drained(t, f), []string{"Added pod1=1"})
		})
		synctest.Wait()
		expect.NoError(t, f.Add(t.Context(), pod{"pod1", 1}))
		wg.Wait()

		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() { errs[i] = f.Drain(t.Context(), nil) })
		}
		synctest.Wait()
		f.Close()
		wg.Wait()
		for _, err := range errs {
			if !errors.Is(err, delta.ErrClosed) {
				t.Errorf("Drain while closing: %v, want ErrClosed", err)
			}
		}
	})
}

func TestReplace_passesThroughALesserCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &lockedKnown{known: known{}}
		f := delta.New(podKey, &delta.Options[pod]{Known: k, Capacity: 3})
		var list []pod
		for i := range 20 {
			list = append(list, podOf(i, i))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			expect.NoError(t, f.Replace(t.Context(), list, 0))
			expect.NoError(t, f.Replace(t.Context(), list[:5], 0))
			f.Close()
		})
		longest := 0
		for {
			err := f.Drain(t.Context(), func(ds delta.Deltas[pod], _ bool) error {
				longest = max(longest, len(ds))
				k.mu.Lock()
				defer k.mu.Unlock()
				k.apply(ds)
				return nil
			})
			if errors.Is(err, delta.ErrClosed) {
				break
			}
			expect.NoError(t, err)
		}
		wg.Wait()
		expect.Equal(t, len(k.known), 5)
		expect.Equal(t, f.HasSynced(), true)
		if longest > 3 {
			t.Errorf("%d deltas waited in a queue of 3", longest)
		}
	})
}

func TestRelist_holdsOtherProducersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := delta.New(podKey, nil)
		r, err := f.Relist(t.Context())
		expect.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Add(ctx, pod{"pod1", 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Add during a list: %v, want the context's error", err)
		}
		r.Close()
		expect.NoError(t, f.Add(t.Context(), pod{"pod1", 1}))
	})
}

func TestRelist_thatIsIdleDoesNotOutlastClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := delta.New(podKey, nil)
		r, err := f.Relist(t.Context())
		expect.NoError(t, err)
		defer r.Close()
		waited := make(chan error)
		go func() { waited <- f.Add(t.Context(), pod{"pod1", 1}) }()
		synctest.Wait()
		f.Close()
		if err := <-waited; !errors.Is(err, delta.ErrClosed) {
			t.Errorf("Add behind an idle list: %v, want ErrClosed", err)
		}
	})
}

// TestConcurrent_consumerEndsWithTheSourcesState runs a source that loses events and
// lists again, and a consumer that applies the deltas. In every interleaving the consumer
// must end with the source's state, and a deletion is reported only for an object that
// exists.
func TestConcurrent_consumerEndsWithTheSourcesState(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	ctx := t.Context()
	mine := &lockedKnown{known: known{}}
	f := delta.New(podKey, &delta.Options[pod]{Known: mine, Capacity: 8})

	source := known{}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer f.Close()
		for step := range 20_000 {
			p := podOf(rng.IntN(12), step+1)
			missed := rng.IntN(10) == 0
			if old, ok := source[p.Name]; ok && rng.IntN(3) == 0 {
				delete(source, p.Name)
				if !missed {
					expect.NoError(t, f.Delete(ctx, old))
				}
			} else {
				source[p.Name] = p
				if !missed {
					expect.NoError(t, f.Update(ctx, p))
				}
			}
			if rng.IntN(200) == 0 {
				relist(t, f, source)
			}
			if rng.IntN(200) == 0 {
				expect.NoError(t, f.Resync(ctx))
			}
		}
		relist(t, f, source)
	})
	for i := 0; ; i++ {
		take := f.Drain
		if i%3 == 0 {
			take = f.Pop
		}
		err := take(ctx, func(ds delta.Deltas[pod], _ bool) error {
			mine.mu.Lock()
			defer mine.mu.Unlock()
			for _, d := range ds {
				had, ok := mine.known[d.Key]
				if d.Type == delta.Deleted && !ok {
					t.Errorf("deletion of %s, which is not known", d.Key)
				}
				if d.Type != delta.Deleted && d.Object.Value < had.Value {
					t.Errorf("%s of %s goes back from %d to %d", d.Type, d.Key, had.Value, d.Object.Value)
				}
				mine.apply(delta.Deltas[pod]{d})
			}
			return nil
		})
		if errors.Is(err, delta.ErrClosed) {
			break
		}
		expect.NoError(t, err)
	}
	wg.Wait()
	expect.Equal(t, mine.known, source)
}

func relist(t *testing.T, f *delta.FIFO[pod], source known) {
	var list []pod
	for _, p := range source.All() {
		list = append(list, p)
	}
	expect.NoError(t, f.Replace(t.Context(), list, 0))
}

func TestAfterClose_isCalledOnceUnlessForgotten(t *testing.T) {
	f := delta.New(podKey, nil)
	var calls []string
	call := func(name string) func() { return func() { calls = append(calls, name) } }
	f.AfterClose(call("first"))
	f.AfterClose(call("forgotten"))()
	forget := f.AfterClose(call("second"))
	f.Close()
	f.Close()
	forget()
	expect.Equal(t, calls, []string{"first", "second"})
	f.AfterClose(call("late"))()
	expect.Equal(t, calls, []string{"first", "second", "late"})
}
