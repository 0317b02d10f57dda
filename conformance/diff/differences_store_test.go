// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

func byTag(p *pod) ([]string, error) { return p.Tags, nil }

func tagIndexer() cache.Indexer {
	return cache.NewIndexer(storeKeyFunc, cache.Indexers{"tag": indexers["tag"]})
}

// panics returns the value that f panicked with, as text.
func panics(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// applyAll calls [store.Store.Apply] and returns a trace of all objects together.
func applyAll(s *store.Store[*pod], deltas ...delta.Delta[*pod]) string {
	t := trace{}
	for _, c := range s.Apply(deltas) {
		c.Key = ""
		noteChange(t, c)
	}
	return strings.Join(t[""], "; ")
}

// TestDifference_keyOrderInStore: see TestDifference_keyOrderInQueue for the probability.
func TestDifference_keyOrderInStore(t *testing.T) {
	keys := []string{"a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "b/3", "b/4"}
	theirs, ours := tagIndexer(), store.New(podKey, nil)
	tag := store.NewIndex(ours, "tag", byTag)
	for i, key := range keys {
		must(t, theirs.Add(newPod(key, i, "red")))
		must(t, ours.Put(newPod(key, i, "red")))
	}
	lists, found := map[string]bool{}, map[string]bool{}
	for range 50 {
		lists[lines(podsOf(theirs.List()))] = true
		pods, err := theirs.ByIndex("tag", "red")
		must(t, err)
		found[lines(podsOf(pods))] = true
	}
	isTrue(t, len(lists) > 1 && len(found) > 1, "client-go lists in any order, from an index too")
	isTrue(t, slices.Equal(ourKeys(ours.Snapshot()), keys), "ours lists in key order")
	isTrue(t, slices.Equal(slices.Collect(tag.Keys(ours.Snapshot(), "red")), keys), "ours finds in key order")
}

func TestDifference_snapshotAcrossCalls(t *testing.T) {
	theirs, ours := tagIndexer(), store.New(podKey, nil)
	tag := store.NewIndex(ours, "tag", byTag)
	p, q := newPod("a/1", 1, "red"), newPod("a/2", 2, "red")
	must(t, theirs.Add(p))
	must(t, ours.Put(p))

	list, snapshot := theirs.List(), ours.Snapshot()
	must(t, theirs.Add(q))
	must(t, ours.Put(q))
	found, err := theirs.ByIndex("tag", "red")
	must(t, err)
	isTrue(t, len(list) == 1 && len(found) == 2, "two reads of client-go's store are of two moments")
	want(t, "two reads of one of our snapshots", linesOf(snapshot.All())+" and "+linesOf(tag.Get(snapshot, "red")),
		"a/1=1 red and a/1=1 red")
}

func TestDifference_indexFailureIsCounted(t *testing.T) {
	p := newPod("a/1", 1)
	fail := func(any) ([]string, error) { return nil, errTransform }
	theirs := cache.NewIndexer(podKeyFunc, cache.Indexers{"bad": fail})
	isTrue(t, strings.Contains(panics(func() { _ = theirs.Add(p) }), errTransform.Error()),
		"client-go panics when an index function fails")

	ours := store.New(podKey, nil)
	bad := store.NewIndex(ours, "bad", func(*pod) ([]string, error) { return nil, errTransform })
	worse := store.NewIndex(ours, "worse", func(*pod) ([]string, error) { panic("worse") })
	good := store.NewIndex(ours, "good", func(*pod) ([]string, error) { return []string{"x"}, nil })
	must(t, ours.Put(p))
	n, err := bad.Failing()
	isTrue(t, n == 1 && errors.Is(err, errTransform), "ours counts it")
	n, err = worse.Failing()
	isTrue(t, n == 1 && strings.Contains(err.Error(), "worse"), "and a panic too")
	want(t, "the object and the other index", linesOf(good.Get(ours.Snapshot(), "x")), "a/1=1")
}

// invariants says that the tests are built with the tag of this name: the store then computes every index again after
// each batch.
var invariants bool

func TestDifference_indexOncePerState(t *testing.T) {
	theirCalls, ourCalls := 0, 0
	theirs := cache.NewIndexer(podKeyFunc, cache.Indexers{"tag": func(obj any) ([]string, error) {
		theirCalls++
		return obj.(*pod).Tags, nil
	}})
	ours := store.New(podKey, nil)
	tag := store.NewIndex(ours, "tag", func(p *pod) ([]string, error) {
		ourCalls++
		return p.Tags, nil
	})
	p, q := newPod("a/1", 1, "red"), newPod("a/1", 2, "red")
	must(t, theirs.Add(p))
	must(t, theirs.Update(q))
	must(t, ours.Put(p))
	must(t, ours.Put(q))
	if invariants {
		ourCalls -= 2 // the check after each batch asks once for the only object
	}
	isTrue(t, theirCalls == 3 && ourCalls == 2, "for two states client-go asks three times, ours twice")

	q.Tags = []string{"blue"} // forbidden, but it happens
	must(t, theirs.Delete(q))
	found, err := theirs.ByIndex("tag", "red")
	must(t, err)
	isTrue(t, len(found) == 1 && found[0] == nil, "client-go then finds a nil that it keeps for ever")
	isTrue(t, ours.Delete("a/1") && len(slices.Collect(tag.Values(ours.Snapshot()))) == 0, "ours finds nothing")
}

func TestDifference_indexIsAHandle(t *testing.T) {
	theirs := tagIndexer()
	isTrue(t, theirs.AddIndexers(cache.Indexers{"tag": indexers["tag"]}) != nil,
		"client-go refuses a second index of a name")
	_, err := theirs.ByIndex("tags", "red")
	isTrue(t, err != nil, "client-go has names that do not exist")

	ours := store.New(podKey, nil)
	one, two := store.NewIndex(ours, "tag", byTag), store.NewIndex(ours, "tag", byTag)
	must(t, ours.Put(newPod("a/1", 1, "red")))
	for _, x := range []*store.Index[*pod, string]{one, two} {
		want(t, "ours", linesOf(x.Get(ours.Snapshot(), "red")), "a/1=1 red")
	}
}

// TestDifference_unknownDeletion runs client-go's informer: its DeltaFIFO would drop the
// deletion, but its newer queue does not.
func TestDifference_unknownDeletion(t *testing.T) {
	events := watch.NewFake()
	deleted := make(chan any, 1)
	meta := metav1.ObjectMeta{Namespace: "a", Name: "1", ResourceVersion: "2"}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: unstreamed{&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return events, nil
			},
		}},
		ObjectType: &metav1.PartialObjectMetadata{},
		Handler:    cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { deleted <- obj }},
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		informer.Run(stop)
	}()
	events.Delete(&metav1.PartialObjectMetadata{ObjectMeta: meta})
	select {
	case obj := <-deleted:
		want(t, "client-go calls OnDelete", obj.(*metav1.PartialObjectMetadata).Name, "1")
	case <-time.After(time.Minute):
		t.Error("client-go does not call OnDelete for an object it never had")
	}
	close(stop)
	<-stopped

	ours := store.New(podKey, nil)
	want(t, "ours", applyAll(ours, delta.Delta[*pod]{Type: delta.Deleted, Key: "a/1", Object: newPod("a/1", 2)}), "")
}

// unstreamed makes client-go list instead of streaming the list.
type unstreamed struct{ *cache.ListWatch }

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

func TestDifference_deletionHasBothStates(t *testing.T) {
	old, final := newPod("a/1", 1), newPod("a/1", 2)
	var got any
	state := cache.NewStore(storeKeyFunc)
	must(t, state.Add(old))
	must(t, process(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		got = obj
	}}, state, cache.Deltas{{Type: cache.Deleted, Object: final}}, false))
	isTrue(t, got == any(final), "client-go gives the final state alone")

	ours := store.New(podKey, nil)
	must(t, ours.Put(old))
	changes := ours.Apply([]delta.Delta[*pod]{{Type: delta.Deleted, Key: "a/1", Object: final}})
	isTrue(t, changes[0].Old == old && changes[0].New == final, "ours gives the state it had as well")
}

func TestDifference_sameIsNoChange(t *testing.T) {
	p, again := newPod("a/1", 1), newPod("a/1", 1)
	state := cache.NewStore(storeKeyFunc)
	theirs := &recorder{trace: trace{}}
	for _, p := range []*pod{p, again} {
		must(t, process(theirs, state, cache.Deltas{{Type: cache.Replaced, Object: p}}, false))
	}
	want(t, "client-go", strings.Join(theirs.trace["a/1"], "; "), "add a/1=1; update a/1=1 to a/1=1")

	ours := store.New(podKey, &store.Options[*pod]{
		Same: func(old, now *pod) bool { return old.ResourceVersion == now.ResourceVersion },
	})
	must(t, ours.Put(p))
	want(t, "ours", applyAll(ours, delta.Delta[*pod]{Type: delta.Replaced, Key: "a/1", Object: again}), "")
	kept, _ := ours.Get("a/1")
	isTrue(t, kept == p, "ours keeps the object it has")
}

func TestDifference_syncOfWhatIsGone(t *testing.T) {
	p := newPod("a/1", 1)
	state := cache.NewStore(storeKeyFunc)
	theirs := &recorder{trace: trace{}}
	must(t, process(theirs, state, cache.Deltas{{Type: cache.Sync, Object: p}}, false))
	want(t, "client-go", strings.Join(theirs.trace["a/1"], "; "), "add a/1=1")

	ours := store.New(podKey, nil)
	want(t, "ours", applyAll(ours, delta.Delta[*pod]{Type: delta.Sync, Key: "a/1", Object: p}), "")
	isTrue(t, ours.Snapshot().Len() == 0, "ours does not bring it back")
}

func TestDifference_syncStoresNothing(t *testing.T) {
	now, stale := newPod("a/1", 2), newPod("a/1", 1)
	state := cache.NewStore(storeKeyFunc)
	must(t, state.Add(now))
	theirs := &recorder{trace: trace{}}
	must(t, process(theirs, state, cache.Deltas{{Type: cache.Sync, Object: stale}}, false))
	want(t, "client-go stores it and calls it an update", strings.Join(theirs.trace["a/1"], "; "),
		"update a/1=2 to a/1=1")

	ours := store.New(podKey, nil)
	must(t, ours.Put(now))
	changes := ours.Apply([]delta.Delta[*pod]{{Type: delta.Sync, Key: "a/1", Object: stale}})
	isTrue(t, changes[0].Type == delta.Sync && changes[0].Old == now && changes[0].New == now,
		"ours reports a Sync of what it has")
}

func TestDifference_versionIsTheNewest(t *testing.T) {
	theirs, ours := cache.NewStore(podKeyFunc), store.New(podKey, nil)
	for _, p := range []*pod{newPod("a/1", 5), newPod("a/2", 3)} {
		must(t, theirs.Update(p))
		ours.Apply([]delta.Delta[*pod]{{Type: delta.Updated, Key: podKey(p), Object: p, Version: podVersion(p)}})
	}
	want(t, "client-go has the last version written", theirs.LastStoreSyncResourceVersion(), "3")
	want(t, "ours the newest", fmt.Sprint(ours.Snapshot().Version()), "5")
	must(t, theirs.Replace(nil, "2"))
	_, err := ours.Replace(nil, 2)
	must(t, err)
	want(t, "client-go after an older list", theirs.LastStoreSyncResourceVersion(), "2")
	want(t, "ours after an older list", fmt.Sprint(ours.Snapshot().Version()), "5")
}
