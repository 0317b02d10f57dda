// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// Every test here pins one entry of "Intended differences from client-go" in
// docs/semantics.md, and pins both sides of it.

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func isTrue(t *testing.T, fact bool, what string) {
	t.Helper()
	if !fact {
		t.Errorf("not so: %s", what)
	}
}

func theirFIFO(known cache.KeyListerGetter) *cache.DeltaFIFO {
	return cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction: podKeyFunc, KnownObjects: known, EmitDeltaTypeReplaced: true,
	})
}

// theirPop returns the next group of client-go's queue, as text.
func theirPop(t *testing.T, f *cache.DeltaFIFO) (text string, initial bool) {
	t.Helper()
	key := queuedKeys(f)[0]
	_, err := f.Pop(func(obj any, first bool) error {
		text, initial = show(convert(key, obj.(cache.Deltas))), first
		return nil
	})
	must(t, err)
	return text, initial
}

// ourDrain returns all that is queued, one string for each call.
func ourDrain(t *testing.T, f *delta.FIFO[*pod]) (calls []string, initial []bool) {
	t.Helper()
	must(t, f.Drain(t.Context(), func(ds delta.Deltas[*pod], first bool) error {
		calls, initial = append(calls, show(ds)), append(initial, first)
		return nil
	}))
	return calls, initial
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestDifference_replacedNotSync(t *testing.T) {
	p := newPod("a/1", 1)
	theirs := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KeyFunction: podKeyFunc})
	must(t, theirs.Replace([]any{p}, ""))
	got, _ := theirPop(t, theirs)
	want(t, "client-go", got, "Sync a/1: a/1=1; ")

	ours := delta.New(podKey, nil)
	must(t, ours.Replace(t.Context(), []*pod{p}, 0))
	calls, _ := ourDrain(t, ours)
	want(t, "ours", calls[0], "Replaced a/1: a/1=1; ")
}

func TestDifference_missedIsAFlag(t *testing.T) {
	p := newPod("a/1", 1)
	theirs := theirFIFO(nil)
	must(t, theirs.Add(p))
	must(t, theirs.Replace(nil, ""))
	_, isPod := queuedDeltas(theirs)["a/1"].Newest().Object.(*pod)
	isTrue(t, !isPod, "client-go's deletion has an object of another type")

	ours := delta.New(podKey, nil)
	must(t, ours.Add(t.Context(), p))
	must(t, ours.Replace(t.Context(), nil, 0))
	ds, _ := ours.GetByKey("a/1")
	isTrue(t, ds.Newest().Missed && ds.Newest().Object == p, "our deletion has the object, and is marked")
}

func TestDifference_closedRefuses(t *testing.T) {
	theirs := theirFIFO(nil)
	theirs.Close()
	must(t, theirs.Add(newPod("a/1", 1)))
	got, _ := theirPop(t, theirs)
	want(t, "client-go", got, "Added a/1: a/1=1; ")

	ours := delta.New(podKey, nil)
	ours.Close()
	err := ours.Add(t.Context(), newPod("a/1", 1))
	isTrue(t, errors.Is(err, delta.ErrClosed) && ours.Len() == 0, "our closed queue refuses an Add")
}

func TestDifference_boundedQueue(t *testing.T) {
	theirs := theirFIFO(nil)
	for i := range 10_000 {
		must(t, theirs.Update(newPod("a/1", i)))
	}
	isTrue(t, len(queuedDeltas(theirs)["a/1"]) == 10_000, "client-go's queue takes whatever comes")

	synctest.Test(t, func(t *testing.T) {
		ours := delta.New(podKey, &delta.Options[*pod]{Capacity: 2})
		must(t, ours.Update(t.Context(), newPod("a/1", 1)))
		must(t, ours.Update(t.Context(), newPod("a/1", 2)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		err := ours.Update(ctx, newPod("a/1", 3))
		isTrue(t, errors.Is(err, context.DeadlineExceeded) && time.Since(start) == time.Hour,
			"our producer waits for room until its context ends")
	})
}

func TestDifference_popEndsWithContext(t *testing.T) {
	theirs := theirFIFO(nil)
	popped := make(chan error)
	go func() {
		_, err := theirs.Pop(func(any, bool) error { return nil })
		popped <- err
	}()
	theirs.Close() // the only way to end it
	isTrue(t, errors.Is(<-popped, cache.ErrFIFOClosed), "client-go's Pop ends with Close")

	ours := delta.New(podKey, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	isTrue(t, errors.Is(ours.Pop(ctx, nil), context.Canceled), "our Pop ends with its context")
	must(t, ours.Add(t.Context(), newPod("a/1", 1)))
}

func TestDifference_syncedAfterProcessing(t *testing.T) {
	list := []*pod{newPod("a/1", 1)}
	theirs := theirFIFO(nil)
	must(t, theirs.Replace(anyOf(list), ""))
	_, err := theirs.Pop(func(any, bool) error {
		isTrue(t, closed(theirs.Done()), "client-go has synced while the last object is being processed")
		return nil
	})
	must(t, err)

	ours := delta.New(podKey, nil)
	must(t, ours.Replace(t.Context(), list, 0))
	must(t, ours.Pop(t.Context(), func(delta.Deltas[*pod], bool) error {
		isTrue(t, !closed(ours.Synced()), "ours has not synced while the last object is being processed")
		return nil
	}))
	isTrue(t, closed(ours.Synced()), "ours has synced afterwards")
}

func TestDifference_processingWithoutTheLock(t *testing.T) {
	state := cache.NewStore(storeKeyFunc)
	theirs := theirFIFO(state)
	must(t, theirs.Add(newPod("a/1", 1)))
	_, err := theirs.Pop(func(obj any, initial bool) error {
		isTrue(t, !queueLock(theirs).TryLock(), "client-go processes under the queue's lock: producers wait")
		return process(cache.ResourceEventHandlerFuncs{}, state, obj.(cache.Deltas), initial)
	})
	must(t, err)
	must(t, theirs.Delete(newPod("a/1", 2)))
	got, _ := theirPop(t, theirs)
	want(t, "client-go", got, "Deleted a/1: a/1=2; ")

	// In ours the deletion arrives while neither queue nor store has the object, and is
	// kept all the same. A second deletion, of an object that is being deleted, is not.
	ourState := store.New(podKey, nil)
	ours := delta.New(podKey, &delta.Options[*pod]{Known: ourState})
	must(t, ours.Add(t.Context(), newPod("a/1", 1)))
	for _, wantText := range []string{"Added a/1: a/1=1; ", "Deleted a/1: a/1=2; "} {
		must(t, ours.Pop(t.Context(), func(ds delta.Deltas[*pod], _ bool) error {
			want(t, "ours", show(ds), wantText)
			must(t, ours.Delete(t.Context(), newPod("a/1", 2)))
			ourState.Apply(ds)
			return nil
		}))
	}
	isTrue(t, ours.Len() == 0, "nothing is queued for an object that is being deleted")
}

func TestDifference_transformWithoutTheLock(t *testing.T) {
	var theirs *cache.DeltaFIFO
	theirs = cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KeyFunction: podKeyFunc,
		Transformer: func(obj any) (any, error) {
			isTrue(t, !queueLock(theirs).TryLock(), "client-go transforms under the queue's lock: the consumer waits")
			return obj, nil
		}})
	must(t, theirs.Add(newPod("a/1", 1)))

	var ours *delta.FIFO[*pod]
	ours = delta.New(podKey, &delta.Options[*pod]{Transform: func(p *pod) (*pod, error) {
		if p.Value == 2 {
			calls, _ := ourDrain(t, ours)
			want(t, "taken from ours while a transform runs", strings.Join(calls, ""), "Added a/1: a/1=1; ")
		}
		return p, nil
	}})
	must(t, ours.Add(t.Context(), newPod("a/1", 1)))
	must(t, ours.Add(t.Context(), newPod("a/1", 2)))
}

func TestDifference_replaceIsPassedThrough(t *testing.T) {
	list := []*pod{newPod("a/1", 1), newPod("a/2", 2), newPod("b/1", 3)}
	var theirs *cache.DeltaFIFO
	theirs = cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KeyFunction: func(obj any) (string, error) {
		isTrue(t, !queueLock(theirs).TryLock(),
			"client-go holds the queue's lock for a whole list: it is taken all or not at all")
		return podKeyFunc(obj)
	}})
	must(t, theirs.Replace(anyOf(list), ""))

	ours := delta.New(podKey, &delta.Options[*pod]{Capacity: 1})
	r, err := ours.Relist(t.Context())
	must(t, err)
	defer r.Close()
	for _, p := range list {
		must(t, r.Add(t.Context(), p)) // would block if the queue were full
		calls, initial := ourDrain(t, ours)
		isTrue(t, len(calls) == 1 && initial[0] && !ours.HasSynced(),
			"our consumer has the beginning of a list before its end")
	}
	must(t, r.Commit(t.Context(), 0))
	isTrue(t, ours.HasSynced(), "ours has synced when the list is complete and processed")
}

func TestDifference_keyOnceBeforeTransform(t *testing.T) {
	rename := func(p *pod) (*pod, error) { return newPod("a/renamed", p.Value), nil }
	state := cache.NewStore(storeKeyFunc)
	theirs := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction: podKeyFunc, KnownObjects: state,
		Transformer: func(obj any) (any, error) { return rename(obj.(*pod)) },
	})
	must(t, theirs.Add(newPod("a/1", 1)))
	_, err := theirs.Pop(func(obj any, initial bool) error {
		return process(cache.ResourceEventHandlerFuncs{}, state, obj.(cache.Deltas), initial)
	})
	must(t, err)
	must(t, theirs.Delete(newPod("a/1", 2)))
	want(t, "client-go stores under the transformed key", strings.Join(state.ListKeys(), " "), "a/renamed")
	isTrue(t, len(queuedKeys(theirs)) == 0, "client-go does not find it again: the deletion is dropped")

	ourState := store.New(podKey, nil)
	ours := delta.New(podKey, &delta.Options[*pod]{Known: ourState, Transform: rename})
	apply := func(ds delta.Deltas[*pod], _ bool) error { ourState.Apply(ds); return nil }
	must(t, ours.Add(t.Context(), newPod("a/1", 1)))
	must(t, ours.Drain(t.Context(), apply))
	want(t, "ours stores under the key it came with", strings.Join(ourKeys(ourState.Snapshot()), " "), "a/1")
	must(t, ours.Delete(t.Context(), newPod("a/1", 2)))
	must(t, ours.Drain(t.Context(), apply))
	isTrue(t, ourState.Snapshot().Len() == 0, "ours finds it again")
}

// TestDifference_keyOrderInQueue: eight keys have 40320 orders, so it is practically
// impossible that 50 lists of client-go's all have the same one.
func TestDifference_keyOrderInQueue(t *testing.T) {
	keys := []string{"a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "b/3", "b/4"}
	state, ourState := cache.NewStore(storeKeyFunc), store.New(podKey, nil)
	for i, key := range keys {
		must(t, state.Add(newPod(key, i)))
		must(t, ourState.Put(newPod(key, i)))
	}
	inferred, resynced := map[string]bool{}, map[string]bool{}
	for range 50 {
		theirs := theirFIFO(state)
		must(t, theirs.Replace(nil, ""))
		inferred[strings.Join(queuedKeys(theirs), " ")] = true
		theirs = theirFIFO(state)
		must(t, theirs.Resync())
		resynced[strings.Join(queuedKeys(theirs), " ")] = true

		ours := delta.New(podKey, &delta.Options[*pod]{Known: ourState})
		must(t, ours.Replace(t.Context(), nil, 0))
		isTrue(t, slices.Equal(ours.ListKeys(), keys), "our deletions are in key order")
		ours = delta.New(podKey, &delta.Options[*pod]{Known: ourState})
		must(t, ours.Resync(t.Context()))
		isTrue(t, slices.Equal(ours.ListKeys(), keys), "our Syncs are in key order")
	}
	isTrue(t, len(inferred) > 1 && len(resynced) > 1, "client-go's are in any order")
}

func TestDifference_drainKeepsArrivalOrder(t *testing.T) {
	pods := []*pod{newPod("a/1", 1), newPod("a/2", 2), newPod("a/1", 3)}
	theirs, ours := theirFIFO(nil), delta.New(podKey, nil)
	for _, p := range pods {
		must(t, theirs.Update(p))
		must(t, ours.Update(t.Context(), p))
	}
	first, _ := theirPop(t, theirs)
	second, _ := theirPop(t, theirs)
	want(t, "client-go, by key", first+second, "Updated a/1: a/1=1; Updated a/1: a/1=3; Updated a/2: a/2=2; ")
	calls, _ := ourDrain(t, ours)
	want(t, "ours, by arrival", calls[0], "Updated a/1: a/1=1; Updated a/2: a/2=2; Updated a/1: a/1=3; ")
}

func TestDifference_initialPerDelta(t *testing.T) {
	theirs, ours := theirFIFO(nil), delta.New(podKey, nil)
	must(t, theirs.Replace([]any{newPod("a/1", 1)}, ""))
	must(t, theirs.Update(newPod("a/1", 2)))
	got, initial := theirPop(t, theirs)
	want(t, "client-go", got, "Replaced a/1: a/1=1; Updated a/1: a/1=2; ")
	isTrue(t, initial, "client-go calls all deltas of an object initial, also those after the list")

	must(t, ours.Replace(t.Context(), []*pod{newPod("a/1", 1)}, 0))
	must(t, ours.Update(t.Context(), newPod("a/1", 2)))
	calls, flags := ourDrain(t, ours)
	want(t, "ours", strings.Join(calls, "| "), "Replaced a/1: a/1=1; | Updated a/1: a/1=2; ")
	isTrue(t, slices.Equal(flags, []bool{true, false}), "our Drain calls initial what was in the list")
}

func TestDifference_refusedAddIsNoPopulation(t *testing.T) {
	theirs, ours := theirFIFO(nil), delta.New(podKey, nil)
	isTrue(t, theirs.Add(newPod("", 1)) != nil && theirs.HasSynced(), "client-go has synced after an Add it refused")
	isTrue(t, ours.Add(t.Context(), newPod("", 1)) != nil && !ours.HasSynced(), "ours has not")
}

func TestDifference_noKeyIsAnError(t *testing.T) {
	p := newPod("", 1)
	theirs := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KeyFunction: cache.MetaNamespaceKeyFunc})
	must(t, theirs.Add(p))
	isTrue(t, len(queuedDeltas(theirs)[""]) == 1, `client-go queues a nameless object under ""`)
	state := cache.NewStore(cache.MetaNamespaceKeyFunc)
	must(t, state.Add(p))

	isTrue(t, errors.Is(delta.New(podKey, nil).Add(t.Context(), p), delta.ErrNoKey), "our queue refuses it")
	isTrue(t, errors.Is(store.New(podKey, nil).Put(p), store.ErrNoKey), "our store refuses it")
}

func TestDifference_transformErrorIsWrapped(t *testing.T) {
	refuse := func(*pod) (*pod, error) { return nil, errTransform }
	theirs := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction: podKeyFunc, Transformer: func(any) (any, error) { return nil, errTransform },
	})
	err := theirs.Replace([]any{newPod("a/1", 1)}, "")
	isTrue(t, err != nil && !errors.Is(err, errTransform) && !strings.Contains(err.Error(), "a/1"),
		"client-go hides which error it was, and of what")
	err = delta.New(podKey, &delta.Options[*pod]{Transform: refuse}).Replace(t.Context(), []*pod{newPod("a/1", 1)}, 0)
	isTrue(t, errors.Is(err, errTransform) && strings.Contains(err.Error(), "a/1"), "ours says which, and of what")
}

func TestDifference_refusedDeletion(t *testing.T) {
	known := cache.NewStore(podKeyFunc)
	must(t, known.Add(newPod("a/1", 1)))
	theirs := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction: podKeyFunc, KnownObjects: known, Transformer: func(any) (any, error) { return nil, errTransform },
	})
	isTrue(t, theirs.Delete(newPod("a/1", 2)) != nil, "client-go reports the refusal")
	isTrue(t, len(queuedKeys(theirs)) == 0, "client-go loses the deletion")

	ours := store.New(podKey, nil)
	must(t, ours.Put(newPod("a/1", 1)))
	queue := delta.New(podKey, &delta.Options[*pod]{
		Known: ours, Transform: func(*pod) (*pod, error) { return nil, errTransform },
	})
	isTrue(t, errors.Is(queue.Delete(t.Context(), newPod("a/1", 2)), errTransform), "ours reports the refusal")
	ds, _ := queue.GetByKey("a/1")
	isTrue(t, len(ds) == 1 && ds[0].Type == delta.Deleted && ds[0].Missed && ds[0].Object.Value == 1,
		"ours queues it with the last state known")
}

func TestDifference_queueCanBeRead(t *testing.T) {
	type reader interface{ ListKeys() []string }
	_, ok := any(theirFIFO(nil)).(reader)
	isTrue(t, !ok, "client-go's queue cannot be read")
	_, ok = any(delta.New(podKey, nil)).(reader)
	isTrue(t, ok, "ours can")
}
