// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// show formats deltas: "Added pod1=1, Deleted pod1=2 (missed)".
func show(ds delta.Deltas[pod]) string {
	var words []string
	for _, d := range ds {
		if d.Type == delta.Bookmark && d.Version == 0 {
			continue // the end of a list without a version
		}
		word := fmt.Sprintf("%s %s=%d", d.Type, d.Key, d.Object.Value)
		if d.Type == delta.Bookmark {
			word = fmt.Sprintf("%s %d", d.Type, d.Version)
		}
		if d.Missed {
			word += " (missed)"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// popped returns the next group, formatted by show, and the initial flag.
func popped(t *testing.T, f *delta.FIFO[pod]) (string, bool) {
	t.Helper()
	var text string
	var flag bool
	expect.NoError(t, f.Pop(t.Context(), func(ds delta.Deltas[pod], initial bool) error {
		text, flag = show(ds), initial
		return nil
	}))
	return text, flag
}

// drained returns everything queued: one line per call of the process function.
func drained(t *testing.T, f *delta.FIFO[pod]) []string {
	t.Helper()
	var lines []string
	expect.NoError(t, f.Drain(t.Context(), func(ds delta.Deltas[pod], initial bool) error {
		line := show(ds)
		if initial {
			line = "initial: " + line
		}
		lines = append(lines, line)
		return nil
	}))
	return lines
}

func TestPop_groupsByKeyInOrder(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Add(ctx, pod{"pod1", 1}))
	expect.NoError(t, f.Add(ctx, pod{"pod2", 2}))
	expect.NoError(t, f.Update(ctx, pod{"pod1", 3}))
	expect.NoError(t, f.Delete(ctx, pod{"pod1", 4}))

	expect.Equal(t, f.ListKeys(), []string{"pod1", "pod2"})
	expect.Equal(t, f.List(), []pod{{"pod1", 4}, {"pod2", 2}})
	ds, ok := f.Get(pod{Name: "pod1"})
	expect.Equal(t, ok, true)
	expect.Equal(t, show(ds), "Added pod1=1, Updated pod1=3, Deleted pod1=4")

	got, initial := popped(t, f)
	expect.Equal(t, got, "Added pod1=1, Updated pod1=3, Deleted pod1=4")
	expect.Equal(t, initial, false)
	got, _ = popped(t, f)
	expect.Equal(t, got, "Added pod2=2")
	expect.Equal(t, f.Len(), 0)
	if _, ok := f.GetByKey("pod1"); ok {
		t.Error("pod1 is still queued after Pop")
	}
}

func TestDrain_keepsArrivalOrderAcrossKeys(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, nil)
	for i, name := range []string{"pod1", "pod2", "pod3", "pod1", "pod2"} {
		expect.NoError(t, f.Update(ctx, pod{name, i}))
	}
	// A Pop in between takes pod1 out of the middle.
	got, _ := popped(t, f)
	expect.Equal(t, got, "Updated pod1=0, Updated pod1=3")
	expect.NoError(t, f.Update(ctx, pod{"pod1", 9}))
	expect.Equal(t, drained(t, f), []string{"Updated pod2=1, Updated pod3=2, Updated pod2=4, Updated pod1=9"})
}

func TestTryDrain_takesWhatIsQueuedAndDoesNotWait(t *testing.T) {
	ctx := t.Context()
	filled := 0
	f := delta.New(podKey, &delta.Options[pod]{Filled: func() { filled++ }})
	var got []string
	take := func(want bool) {
		t.Helper()
		took, err := f.TryDrain(func(ds delta.Deltas[pod], initial bool) error {
			got = append(got, fmt.Sprint(show(ds), " ", initial))
			nested, err := f.TryDrain(func(delta.Deltas[pod], bool) error { return nil })
			expect.NoError(t, err)
			expect.Equal(t, nested, false)
			return nil
		})
		expect.NoError(t, err)
		expect.Equal(t, took, want)
	}
	take(false)
	expect.NoError(t, f.Replace(ctx, []pod{{"pod1", 1}}, 1))
	expect.NoError(t, f.Update(ctx, pod{"pod1", 2}))
	expect.Equal(t, filled, 3)
	take(true)
	take(false)
	expect.Equal(t, got, []string{"Replaced pod1=1, Bookmark 1 true", "Updated pod1=2 false"})
	expect.Equal(t, f.HasSynced(), true)
}

func TestDelete_isDroppedWithoutKnown(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Add(ctx, pod{"pod1", 1}))
	popped(t, f)
	expect.NoError(t, f.Delete(ctx, pod{"pod1", 1}))
	expect.Equal(t, f.Len(), 0)
}

func TestDelete_isKeptForWhatIsKnown(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod1": {"pod1", 1}}})
	expect.NoError(t, f.Delete(ctx, pod{"pod1", 2}))
	expect.NoError(t, f.Delete(ctx, pod{"pod9", 2}))
	expect.Equal(t, drained(t, f), []string{"Deleted pod1=2"})
}

func TestDelete_adjacentOnesMerge(t *testing.T) {
	ctx := t.Context()
	k := known{"pod1": {"pod1", 1}}
	f := delta.New(podKey, &delta.Options[pod]{Known: k})
	expect.NoError(t, f.Replace(ctx, nil, 5))
	expect.NoError(t, f.Delete(ctx, pod{"pod1", 7}))
	expect.NoError(t, f.Delete(ctx, pod{"pod1", 8}))
	// The reported deletion replaces the inferred one and is then kept.
	expect.Equal(t, drained(t, f), []string{"initial: Deleted pod1=7, Bookmark 5"})
}

func TestDelete_whileTheObjectIsBeingProcessed(t *testing.T) {
	// After an object leaves the queue and before the consumer has applied it, neither
	// the queue nor Known has it. It still exists.
	ctx := t.Context()
	k := known{}
	f := delta.New(podKey, &delta.Options[pod]{Known: k})
	expect.NoError(t, f.Add(ctx, pod{"pod1", 1}))
	expect.NoError(t, f.Drain(ctx, func(ds delta.Deltas[pod], _ bool) error {
		expect.NoError(t, f.Delete(ctx, pod{"pod1", 2}))
		k.apply(ds)
		return nil
	}))
	expect.NoError(t, f.Drain(ctx, func(ds delta.Deltas[pod], _ bool) error {
		expect.Equal(t, show(ds), "Deleted pod1=2")
		// A deletion that is being processed counts as applied: there is nothing to
		// delete again.
		expect.NoError(t, f.Delete(ctx, pod{"pod1", 3}))
		expect.NoError(t, f.Replace(ctx, nil, 9))
		k.apply(ds)
		return nil
	}))
	expect.Equal(t, f.Len(), 0)
}

func TestReplace_infersMissedDeletions(t *testing.T) {
	ctx := t.Context()
	k := known{"pod1": {"pod1", 1}, "pod2": {"pod2", 2}}
	f := delta.New(podKey, &delta.Options[pod]{Known: k, Version: podVersion})
	expect.NoError(t, f.Add(ctx, pod{"pod3", 3}))
	expect.NoError(t, f.Replace(ctx, []pod{{"pod1", 11}, {"pod4", 14}}, 20))
	var versions []uint64
	expect.NoError(t, f.Drain(ctx, func(ds delta.Deltas[pod], _ bool) error {
		expect.Equal(t, show(ds),
			"Added pod3=3, Replaced pod1=11, Replaced pod4=14, Deleted pod2=2 (missed), Deleted pod3=3 (missed), "+
				"Bookmark 20")
		for _, d := range ds {
			versions = append(versions, d.Version)
		}
		return nil
	}))
	expect.Equal(t, versions, []uint64{3, 11, 14, 20, 20, 20})
}

func TestRelist_brokenOffInfersNothing(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod1": {"pod1", 1}}})
	r, err := f.Relist(ctx)
	expect.NoError(t, err)
	expect.NoError(t, r.Add(ctx, pod{"pod2", 2}))
	r.Close()
	r.Close()
	expect.Equal(t, f.HasSynced(), false)
	expect.Equal(t, drained(t, f), []string{"initial: Replaced pod2=2"})
	expect.Equal(t, f.HasSynced(), false)
	// The next complete list is still the first one.
	expect.NoError(t, f.Replace(ctx, []pod{{"pod1", 1}}, 0))
	expect.Equal(t, drained(t, f), []string{"initial: Replaced pod1=1"})
	expect.Equal(t, f.HasSynced(), true)
}

func TestRelist_objectDeletedWhileListing(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod1": {"pod1", 1}}})
	r, err := f.Relist(ctx)
	expect.NoError(t, err)
	defer r.Close()
	expect.NoError(t, r.Add(ctx, pod{"pod1", 2}))
	expect.NoError(t, r.Add(ctx, pod{"pod2", 2}))
	expect.NoError(t, r.Delete(ctx, pod{"pod1", 3}))
	expect.NoError(t, r.Delete(ctx, pod{"pod9", 3}))
	expect.NoError(t, r.Commit(ctx, 4))
	expect.Equal(t, drained(t, f), []string{"initial: Replaced pod1=2, Replaced pod2=2, Deleted pod1=3, Bookmark 4"})
}

func TestBookmark_drainGivesItInOrderAndPopLeavesItOut(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Replace(ctx, []pod{{"pod1", 1}}, 3))
	expect.Equal(t, f.Len(), 1)
	expect.NoError(t, f.Bookmark(ctx, 5))
	expect.NoError(t, f.Bookmark(ctx, 6))
	expect.NoError(t, f.Add(ctx, pod{"pod2", 7}))
	expect.NoError(t, f.Bookmark(ctx, 8))
	// The list's bookmark belongs to it. Of two in a row the later one is kept.
	expect.Equal(t, drained(t, f), []string{"initial: Replaced pod1=1, Bookmark 6", "Added pod2=7, Bookmark 8"})

	expect.NoError(t, f.Bookmark(ctx, 9))
	expect.NoError(t, f.Add(ctx, pod{"pod1", 10}))
	expect.NoError(t, f.Bookmark(ctx, 11))
	expect.NoError(t, f.Update(ctx, pod{"pod1", 12}))
	got, _ := popped(t, f)
	expect.Equal(t, got, "Added pod1=10, Updated pod1=12")
	expect.NoError(t, f.Add(ctx, pod{"pod2", 13}))
	expect.Equal(t, drained(t, f), []string{"Added pod2=13"})
}

func TestBookmark_popSyncsWithoutIt(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Replace(ctx, []pod{{"pod1", 1}}, 3))
	popped(t, f)
	expect.Equal(t, f.HasSynced(), true)
}

func TestRelistBack_tellsTheConsumer(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Version: podVersion})
	r, err := f.RelistBack(ctx)
	expect.NoError(t, err)
	expect.NoError(t, r.Add(ctx, pod{"pod1", 2}))
	expect.NoError(t, r.Commit(ctx, 3))
	r.Close()
	expect.NoError(t, f.Bookmark(ctx, 4))
	expect.NoError(t, f.Drain(ctx, func(ds delta.Deltas[pod], _ bool) error {
		expect.Equal(t, ds, delta.Deltas[pod]{
			{Type: delta.Replaced, Missed: true, Listed: true, Key: "pod1", Object: pod{"pod1", 2}, Version: 2},
			{Type: delta.Bookmark, Missed: true, Listed: true, Version: 4},
		})
		return nil
	}))
}

func TestResync_skipsWhatIsQueued(t *testing.T) {
	ctx := t.Context()
	k := known{"pod1": {"pod1", 1}, "pod2": {"pod2", 2}}
	f := delta.New(podKey, &delta.Options[pod]{Known: k})
	expect.NoError(t, f.Update(ctx, pod{"pod2", 3}))
	expect.NoError(t, f.Resync(ctx))
	expect.Equal(t, drained(t, f), []string{"Updated pod2=3, Sync pod1=1"})

	f = delta.New(podKey, nil)
	expect.NoError(t, f.Resync(ctx))
	expect.Equal(t, f.Len(), 0)
}

func TestHasSynced_afterTheFirstListIsProcessed(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod9": {"pod9", 9}}})
	expect.Equal(t, f.HasSynced(), false)
	expect.NoError(t, f.Replace(ctx, []pod{{"pod1", 1}, {"pod2", 2}}, 0))
	expect.NoError(t, f.Update(ctx, pod{"pod1", 5}))
	expect.NoError(t, f.Add(ctx, pod{"pod3", 3}))
	expect.Equal(t, f.HasSynced(), false)

	// There are two calls: the list, and the deltas after it.
	var syncedAt []bool
	expect.NoError(t, f.Drain(ctx, func(_ delta.Deltas[pod], _ bool) error {
		syncedAt = append(syncedAt, f.HasSynced())
		return nil
	}))
	expect.Equal(t, syncedAt, []bool{false, true})
}

func TestDrain_beforeTheFirstListAllIsInitial(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, &delta.Options[pod]{Known: known{"pod1": {"pod1", 1}}})
	expect.NoError(t, f.Resync(ctx))
	expect.Equal(t, drained(t, f), []string{"initial: Sync pod1=1"})
	expect.Equal(t, f.HasSynced(), false)
}

func TestHasSynced_popByPop(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Replace(ctx, []pod{{"pod1", 1}, {"pod2", 2}}, 0))
	expect.NoError(t, f.Update(ctx, pod{"pod1", 5}))
	expect.NoError(t, f.Add(ctx, pod{"pod3", 3}))
	for _, want := range []struct {
		deltas          string
		initial, synced bool
	}{
		{"Replaced pod1=1, Updated pod1=5", true, false},
		{"Replaced pod2=2", true, true},
		{"Added pod3=3", false, true},
	} {
		got, initial := popped(t, f)
		expect.Equal(t, got, want.deltas)
		expect.Equal(t, initial, want.initial)
		expect.Equal(t, f.HasSynced(), want.synced)
	}
}

func TestHasSynced_atOnceForAnEmptyListOrAnEarlyAdd(t *testing.T) {
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Replace(t.Context(), nil, 0))
	expect.Equal(t, f.HasSynced(), true)
	f = delta.New(podKey, nil)
	expect.NoError(t, f.Add(t.Context(), pod{"pod1", 1}))
	expect.Equal(t, f.HasSynced(), true)
	select {
	case <-f.Synced():
	default:
		t.Error("Synced is not closed")
	}
}

func TestTransform_onceForWhatTheSourceSends(t *testing.T) {
	ctx := t.Context()
	boom := errors.New("boom")
	f := delta.New(podKey, &delta.Options[pod]{
		Known: known{"pod1": {"pod1", 1}, "pod2": {"pod2", 2}},
		Transform: func(p pod) (pod, error) {
			if p.Value == 13 {
				return p, boom
			}
			return pod{Name: "renamed", Value: p.Value * 100}, nil
		},
	})
	expect.NoError(t, f.Resync(ctx))
	expect.NoError(t, f.Update(ctx, pod{"pod3", 3}))
	if err := f.Update(ctx, pod{"pod4", 13}); !errors.Is(err, boom) || !strings.Contains(err.Error(), "pod4") {
		t.Errorf("Update: %v, want the transform's error with the key", err)
	}
	expect.NoError(t, f.Replace(ctx, []pod{{"pod1", 5}}, 0))
	// The key is that of the object before the transform. Objects from Known were
	// transformed before they were stored.
	expect.Equal(t, drained(t, f), []string{
		"Sync pod1=1, Sync pod2=2, Updated pod3=300, Replaced pod1=500, Deleted pod2=2 (missed), Deleted pod3=300 " +
			"(missed)",
	})
}

func TestTransform_refusesADeletion(t *testing.T) {
	ctx := t.Context()
	boom := errors.New("boom")
	f := delta.New(podKey, &delta.Options[pod]{
		Known:   known{"pod1": {"pod1", 1}, "pod3": {"pod3", 20}},
		Version: podVersion,
		Transform: func(p pod) (pod, error) {
			if p.Value == 13 {
				return p, boom
			}
			return p, nil
		},
	})
	expect.NoError(t, f.Add(ctx, pod{"pod2", 2}))
	// pod3 was created again since it was deleted at 13.
	for _, name := range []string{"pod1", "pod2", "pod3"} {
		if err := f.Delete(ctx, pod{name, 13}); !errors.Is(err, boom) {
			t.Errorf("Delete: %v, want the transform's error", err)
		}
	}
	expect.Equal(t, drained(t, f), []string{"Added pod2=2, Deleted pod1=1 (missed), Deleted pod2=2 (missed)"})
}

func TestNoKey(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, nil)
	for _, err := range []error{
		f.Add(ctx, pod{}), f.Update(ctx, pod{}), f.Delete(ctx, pod{}), f.Replace(ctx, []pod{{}}, 0),
	} {
		if !errors.Is(err, delta.ErrNoKey) {
			t.Errorf("error %v, want ErrNoKey", err)
		}
	}
	if key, err := f.KeyOf(pod{Name: "pod1"}); key != "pod1" || err != nil {
		t.Errorf("KeyOf = %q, %v", key, err)
	}
}

func TestProcess_errorAndPanicLoseNothingElse(t *testing.T) {
	ctx := t.Context()
	boom := errors.New("boom")
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Add(ctx, pod{"pod1", 1}))
	expect.NoError(t, f.Add(ctx, pod{"pod2", 2}))
	expect.NoError(t, f.Add(ctx, pod{"pod3", 3}))
	if err := f.Pop(ctx, func(delta.Deltas[pod], bool) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("Pop: %v, want the process function's error", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = f.Pop(ctx, func(delta.Deltas[pod], bool) error { panic("boom") })
	}()
	got, _ := popped(t, f)
	expect.Equal(t, got, "Added pod3=3")
}

func TestClose(t *testing.T) {
	ctx := t.Context()
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Add(ctx, pod{"pod1", 1}))
	f.Close()
	f.Close()
	if err := f.Add(ctx, pod{"pod2", 2}); !errors.Is(err, delta.ErrClosed) {
		t.Errorf("Add: %v, want ErrClosed", err)
	}
	expect.Equal(t, drained(t, f), []string{"Added pod1=1"})
	if err := f.Pop(context.Background(), nil); !errors.Is(err, delta.ErrClosed) {
		t.Errorf("Pop: %v, want ErrClosed", err)
	}
}

func TestSteadyState_allocatesNothing(t *testing.T) {
	ctx := t.Context()
	f := delta.New(func(p *pod) string { return p.Name }, nil)
	p := &pod{"pod1", 1}
	process := func(delta.Deltas[*pod], bool) error { return nil }
	if n := testing.AllocsPerRun(1000, func() {
		_ = f.Update(ctx, p)
		_ = f.Drain(ctx, process)
	}); n > 1 {
		t.Errorf("%v allocations per update and drain, want at most the one of Drain's closure", n)
	}
}

func TestPop_holesAreClosed(t *testing.T) {
	// A queue that is never empty, and always taken from the front, must not grow.
	ctx := t.Context()
	f := delta.New(podKey, nil)
	expect.NoError(t, f.Add(ctx, pod{"pod0", 0}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 100_000
	names := []string{"poda", "podb", "podc"}
	for i := range rounds {
		expect.NoError(t, f.Update(ctx, pod{names[i%3], i}))
		expect.NoError(t, f.Pop(ctx, func(delta.Deltas[pod], bool) error { return nil }))
	}
	runtime.ReadMemStats(&after)
	expect.Equal(t, f.Len(), 1)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > rounds*40 {
		t.Errorf("%d bytes allocated in %d rounds: the queue grows", grown, rounds)
	}
}
