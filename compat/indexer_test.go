// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/expect"
)

// byLabel indexes pods by the letters of their label.
func byLabel(obj any) ([]string, error) {
	return strings.Split(obj.(*corev1.Pod).Labels["label"], ""), nil
}

// twoStores returns our store and client-go's with the same index functions. Only the
// test writes to them.
func twoStores(t *testing.T) map[string]cache.Indexer {
	t.Helper()
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "label": byLabel}
	return map[string]cache.Indexer{
		"ours":      podInformer(podSource(t), 0, indexers).GetIndexer(),
		"client-go": cache.NewSharedIndexInformer(podSource(t), &corev1.Pod{}, 0, indexers).GetIndexer(),
	}
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func expectNames(t *testing.T, what string, objs []any, want ...string) {
	t.Helper()
	if got := sorted(names(objs)); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestIndexer_asClientGos uses stores without a running informer, as many unit tests of
// controllers do.
func TestIndexer_asClientGos(t *testing.T) {
	for name, x := range twoStores(t) {
		t.Run(name, func(t *testing.T) {
			for _, p := range []*corev1.Pod{
				labelled(pod("a", "1"), "x"), labelled(pod("a", "2"), "xy"), labelled(pod("b", "1"), "y"), pod("", "c"),
			} {
				if err := x.Add(p); err != nil {
					t.Fatal(err)
				}
			}
			expectNames(t, "List", x.List(), "a/1", "a/2", "b/1", "c")
			if got, want := sorted(x.ListKeys()), []string{"a/1", "a/2", "b/1", "c"}; !slices.Equal(got, want) {
				t.Errorf("ListKeys: %q, want %q", got, want)
			}
			by := func(index, value string, want ...string) {
				t.Helper()
				objs, err := x.ByIndex(index, value)
				if err != nil {
					t.Fatal(err)
				}
				expectNames(t, index+"="+value, objs, want...)
				keys, err := x.IndexKeys(index, value)
				if err != nil || !slices.Equal(sorted(keys), want) {
					t.Errorf("IndexKeys %s=%s: %q, %v, want %q", index, value, keys, err, want)
				}
			}
			by(cache.NamespaceIndex, "a", "a/1", "a/2")
			by(cache.NamespaceIndex, "b", "b/1")
			by(cache.NamespaceIndex, "", "c")
			by(cache.NamespaceIndex, "z")
			by("label", "x", "a/1", "a/2")
			by("label", "y", "a/2", "b/1")
			by("label", "z")

			objs, err := x.Index("label", labelled(pod("z", "z"), "xy"))
			if err != nil {
				t.Fatal(err)
			}
			expectNames(t, "Index of two values", objs, "a/1", "a/2", "b/1")
			if objs, err = x.Index(cache.NamespaceIndex, pod("a", "9")); err != nil {
				t.Fatal(err)
			}
			expectNames(t, "Index of a namespace", objs, "a/1", "a/2")
			if got, want := sorted(x.ListIndexFuncValues(cache.NamespaceIndex)),
				[]string{"", "a", "b"}; !slices.Equal(got, want) {
				t.Errorf("namespaces: %q, want %q", got, want)
			}
			if got, want := sorted(x.ListIndexFuncValues("label")), []string{"x", "y"}; !slices.Equal(got, want) {
				t.Errorf("labels: %q, want %q", got, want)
			}
			if got := x.ListIndexFuncValues("nonsense"); len(got) != 0 {
				t.Errorf("values of no index: %q", got)
			}

			if err := x.Update(labelled(pod("a", "2"), "z")); err != nil {
				t.Fatal(err)
			}
			by("label", "z", "a/2")
			by("label", "y", "b/1")
			if err := x.Delete(pod("a", "1")); err != nil {
				t.Fatal(err)
			}
			if err := x.Delete(cache.DeletedFinalStateUnknown{Key: "b/1"}); err != nil {
				t.Fatal(err)
			}
			if err := x.Delete(pod("a", "unknown")); err != nil {
				t.Fatal(err)
			}
			expectNames(t, "List", x.List(), "a/2", "c")
			by("label", "y")

			if err := x.Replace([]any{labelled(pod("d", "1"), "y"), pod("a", "2")}, "7"); err != nil {
				t.Fatal(err)
			}
			expectNames(t, "List", x.List(), "a/2", "d/1")
			by("label", "y", "d/1")
			by("label", "z")
			if got := x.LastStoreSyncResourceVersion(); got != "7" {
				t.Errorf("version %q after a list of version 7", got)
			}
			x.Bookmark("9")
			if got := x.LastStoreSyncResourceVersion(); got != "9" {
				t.Errorf("version %q after a bookmark of version 9", got)
			}
			if err := x.Resync(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestIndexer_keysOfANamespace: the keys of a small namespace are found without a walk of all.
func TestIndexer_keysOfANamespace(t *testing.T) {
	x := podInformer(podSource(t), 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}).GetIndexer()
	var all []any
	for n := range 20_000 {
		all = append(all, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: fmt.Sprint("ns-", n%2000), Name: fmt.Sprint("pod-", n), ResourceVersion: "1",
			},
		})
	}
	expect.NoError(t, x.Replace(all, "1"))
	fastest := func(read func() int, want int) time.Duration {
		best := time.Hour
		for range 50 {
			began := time.Now()
			expect.Equal(t, read(), want)
			best = min(best, time.Since(began))
		}
		return best
	}
	whole := fastest(func() int { return len(x.ListKeys()) }, len(all))
	few := fastest(func() int {
		keys, err := x.IndexKeys(cache.NamespaceIndex, "ns-7")
		expect.NoError(t, err)
		return len(keys)
	}, 10)
	if few > whole/10 {
		t.Errorf("%v for the keys of a namespace, %v for all", few, whole)
	}
}

func TestIndexer_gets(t *testing.T) {
	for name, x := range twoStores(t) {
		t.Run(name, func(t *testing.T) {
			if err := x.Add(labelled(pod("a", "1"), "x")); err != nil {
				t.Fatal(err)
			}
			for _, key := range []any{
				pod("a", "1"), cache.DeletedFinalStateUnknown{Key: "a/1"}, cache.ExplicitKey("a/1"),
			} {
				obj, ok, err := x.Get(key)
				if err != nil || !ok || obj.(*corev1.Pod).Labels["label"] != "x" {
					t.Errorf("Get(%v) = %v %v %v", key, obj, ok, err)
				}
			}
			if obj, ok, err := x.Get(pod("a", "2")); obj != nil || ok || err != nil {
				t.Errorf("Get of what is not there = %v %v %v", obj, ok, err)
			}
			if obj, ok, err := x.GetByKey("a/1"); err != nil || !ok || obj.(*corev1.Pod).Name != "1" {
				t.Errorf("GetByKey = %v %v %v", obj, ok, err)
			}
			if obj, ok, err := x.GetByKey("a/2"); obj != nil || ok || err != nil {
				t.Errorf("GetByKey of what is not there = %v %v %v", obj, ok, err)
			}
			if _, _, err := x.Get(3); !errors.As(err, &cache.KeyError{}) {
				t.Errorf("Get of a number: %v", err)
			}
		})
	}
}

func TestIndexer_errorsHaveClientGosWords(t *testing.T) {
	stores := twoStores(t)
	for _, c := range []struct {
		name string
		do   func(cache.Indexer) error
	}{
		{"ByIndex", func(x cache.Indexer) error { _, err := x.ByIndex("none", "x"); return err }},
		{"IndexKeys", func(x cache.Indexer) error { _, err := x.IndexKeys("none", "x"); return err }},
		{"Index", func(x cache.Indexer) error { _, err := x.Index("none", pod("a", "1")); return err }},
		{
			"AddIndexers", func(x cache.Indexer) error {
				return x.AddIndexers(cache.Indexers{"label": byLabel, "new": byLabel})
			},
		},
		{"Get", func(x cache.Indexer) error { _, _, err := x.Get(3); return err }},
		{"Add", func(x cache.Indexer) error { return x.Add(3) }},
		{"Update", func(x cache.Indexer) error { return x.Update(3) }},
		{"Delete", func(x cache.Indexer) error { return x.Delete(3) }},
		{"Replace", func(x cache.Indexer) error { return x.Replace([]any{3}, "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			theirs, ours := c.do(stores["client-go"]), c.do(stores["ours"])
			if theirs == nil || ours == nil || theirs.Error() != ours.Error() {
				t.Errorf("client-go says %v, and we %v", theirs, ours)
			}
		})
	}
	if _, ok := stores["ours"].GetIndexers()["new"]; ok {
		t.Error("of indexes that conflict one was added")
	}
}

func TestIndexer_indexersCanBeAddedAndAreACopy(t *testing.T) {
	i := podInformer(podSource(t, labelled(pod("a", "1"), "x")), 0, nil)
	x := i.GetIndexer()
	stop := synced(t, i)
	if err := i.AddIndexers(cache.Indexers{"label": byLabel}); err != nil {
		t.Fatal(err)
	}
	if err := x.AddIndexers(cache.Indexers{"other": byLabel}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"label", "other"} {
		objs, err := x.ByIndex(name, "x")
		if err != nil {
			t.Fatal(err)
		}
		expectNames(t, name, objs, "a/1")
	}
	indexers := x.GetIndexers()
	delete(indexers, "label")
	if len(x.GetIndexers()) != 2 {
		t.Error("a change of the map from GetIndexers changes the indexes")
	}
	stop()
	if err := i.AddIndexers(cache.Indexers{"late": byLabel}); err == nil ||
		err.Error() != "indexer was not added because it has stopped already" {
		t.Errorf("after the end: %v", err)
	}
}

func TestIndexer_functionThatFailsLeavesItsObjectOut(t *testing.T) {
	fails := func(obj any) ([]string, error) {
		if obj.(*corev1.Pod).Name == "1" {
			return nil, errors.New("no")
		}
		return []string{"x"}, nil
	}
	i := podInformer(podSource(t, pod("a", "1"), pod("a", "2")), 0, cache.Indexers{"fails": fails})
	synced(t, i)
	objs, err := i.GetIndexer().ByIndex("fails", "x")
	if err != nil {
		t.Fatal(err)
	}
	expectNames(t, "fails", objs, "a/2")
	expectNames(t, "List", i.GetIndexer().List(), "a/1", "a/2")
}

// TestIndexer_takesAnyVersion checks that a write to a store always succeeds, also with
// an older version.
func TestIndexer_takesAnyVersion(t *testing.T) {
	x := podInformer(podSource(t), 0, nil).GetIndexer()
	for _, version := range []string{"5", "3", "", "text", "4"} {
		p := pod("a", "1")
		p.ResourceVersion = version
		if err := x.Update(p); err != nil {
			t.Fatal(err)
		}
		obj, ok, err := x.GetByKey("a/1")
		if err != nil || !ok || obj.(*corev1.Pod).ResourceVersion != version {
			t.Errorf("after version %q: %v %v %v", version, obj, ok, err)
		}
	}
	old := pod("a", "1")
	old.ResourceVersion = "1"
	if err := x.Delete(old); err != nil {
		t.Fatal(err)
	}
	expectNames(t, "after the deletion with an old version", x.List())
}

// TestIndexer_deletesWhatCannotBeDecoded checks that any object can be deleted by its
// key.
func TestIndexer_deletesWhatCannotBeDecoded(t *testing.T) {
	s := serve(t, runtime.ContentTypeJSON)
	s.watch = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", s.media)
		_, _ = io.WriteString(w,
			`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"a","name":"1","resourceVersion":"1"},"spec":{"nodeName":7}}}`)
		s.stream(w, r, bookmark(10))
	}
	cfg, _ := s.config()
	i := podInformer(podsOf(clientset(t, cfg)), 0, nil)
	synced(t, i)
	x := i.GetIndexer()
	if keys := x.ListKeys(); !slices.Equal(keys, []string{"a/1"}) {
		t.Fatalf("it has %q", keys)
	}
	if err := x.Delete(pod("a", "1")); err != nil {
		t.Fatal(err)
	}
	if keys := x.ListKeys(); len(keys) > 0 {
		t.Errorf("after the deletion it has %q", keys)
	}
}

func TestIndexer_refusesOtherTypes(t *testing.T) {
	x := podInformer(podSource(t), 0, nil).GetIndexer()
	for _, obj := range []any{&corev1.Node{}, &unstructured.Unstructured{}, pod("a", ""), (*corev1.Pod)(nil)} {
		if err := x.Add(obj); err == nil {
			t.Errorf("it took a %T", obj)
		}
	}
	if got := x.List(); len(got) > 0 {
		t.Errorf("it has %q", got)
	}
}

func TestIndexer_tellsHandlersWhatIsWritten(t *testing.T) {
	i := podInformer(podSource(t, pod("a", "1")), 0, nil)
	j := &recorder{}
	synced(t, i, join(t, i, j))
	j.expect(t, "add a/1 true")
	x := i.GetIndexer()
	for _, err := range []error{x.Add(pod("a", "2")), x.Update(labelled(pod("a", "2"), "x")), x.Delete(pod("a", "2"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	j.expect(t, "add a/2 false", "update a/2 a/2=x", "delete a/2=x")
}

func TestIndexer_generatedLister(t *testing.T) {
	i := podInformer(podSource(t, labelled(pod("a", "1"), "x"), pod("a", "2"), pod("b", "1")), 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	synced(t, i)
	lister := corelisters.NewPodLister(i.GetIndexer())
	all, err := lister.List(labels.Everything())
	if err != nil || !slices.Equal(names(all), []string{"a/1", "a/2", "b/1"}) {
		t.Errorf("all: %q, %v", names(all), err)
	}
	some, err := lister.Pods("a").List(labels.SelectorFromSet(labels.Set{"label": "x"}))
	if err != nil || !slices.Equal(names(some), []string{"a/1"}) {
		t.Errorf("by label: %q, %v", names(some), err)
	}
	if p, err := lister.Pods("b").Get("1"); err != nil || p.Namespace != "b" || p.TypeMeta != (metav1.TypeMeta{}) {
		t.Errorf("b/1: %v, %v", p, err)
	}
	if _, err := lister.Pods("b").Get("2"); err == nil || err.Error() != `pod "2" not found` {
		t.Errorf("b/2: %v", err)
	}
}
