// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

const (
	storeObjects    = 100_000
	storeNamespaces = 100
	// storeUpdates is how many updates a round has.
	storeUpdates = 50_000
	// storeBatch is the batch size of the update in the line for scripts.
	storeBatch = 100
	// storeLists is how many lists a round has.
	storeLists = 500
)

// storeWorld has the same pods in both stores, each with an index by namespace. Our
// store does not need one, because a namespace is a range of keys; it has one so that
// both sides pay for an index.
type storeWorld struct {
	keys []string
	pods []*corev1.Pod
	// ours was filled in the order of keys, as an API server lists.
	ours *store.Store[*corev1.Pod]
	// shuffled was filled in random order, as after long churn.
	shuffled *store.Store[*corev1.Pod]
	theirs   cache.ThreadSafeStore
	// index belongs to ours.
	index *store.Index[*corev1.Pod, string]
	// visited counts the pods that lists of ours returned, less those of theirs.
	visited int
}

func podKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

func newStoreWorld() (*storeWorld, error) {
	w := &storeWorld{
		ours:     store.New(podKey, nil),
		shuffled: store.New(podKey, nil),
		theirs: cache.NewThreadSafeStore(cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		}, cache.Indices{}),
	}
	w.index = store.NewIndex(w.ours, "namespace", func(p *corev1.Pod) ([]string, error) {
		return []string{p.Namespace}, nil
	})
	for i := range storeObjects {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace:       fmt.Sprintf("namespace-%03d", i/(storeObjects/storeNamespaces)),
			Name:            fmt.Sprintf("deployment-%05d-%05x", i, i*7919%0xfffff),
			ResourceVersion: "1",
		}}
		w.pods, w.keys = append(w.pods, p), append(w.keys, podKey(p))
	}
	w.replaceTheirs()
	random := slices.Clone(w.pods)
	rand.Shuffle(len(random), func(i, j int) { random[i], random[j] = random[j], random[i] })
	if _, err := w.shuffled.Replace(random, 1); err != nil {
		return nil, err
	}
	return w, w.replaceOurs()
}

func (w *storeWorld) replaceOurs() error {
	_, err := w.ours.Replace(w.pods, 1)
	return err
}

func (w *storeWorld) replaceTheirs() {
	items := make(map[string]any, len(w.pods))
	for i, p := range w.pods {
		items[w.keys[i]] = p
	}
	w.theirs.Replace(items, "1")
}

// updates returns new states of random pods.
func (w *storeWorld) updates(n int) []delta.Delta[*corev1.Pod] {
	ds := make([]delta.Delta[*corev1.Pod], n)
	for i := range ds {
		at := rand.IntN(len(w.keys))
		p := *w.pods[at]
		ds[i] = delta.Delta[*corev1.Pod]{Type: delta.Updated, Key: w.keys[at], Object: &p}
	}
	return ds
}

// BenchmarkStore measures the operations of the store and of client-go's, in turns. The
// times are CPU time per operation, with the garbage collector's, and means of several
// rounds. make bench NAME=store runs it.
func BenchmarkStore(b *testing.B) {
	w, err := newStoreWorld()
	if err != nil {
		b.Fatal(err)
	}
	ds := w.updates(storeUpdates)
	updateOurs, updateTheirs := w.benchUpdates(b, ds)
	w.benchGets(b)
	w.benchLists(b)
	if w.visited != 0 {
		b.Fatalf("the two stores listed different numbers of pods: %d apart", w.visited)
	}
	inTurns(b, "replace everything", 3, 1, func() { _ = w.replaceOurs() }, w.replaceTheirs)
	p99Ours, p99Theirs := w.benchUnderLoad(b, ds)
	publish(b, &storeReport)
	fmt.Fprintf(os.Stdout, "store: get-p99-under-load ours=%v client-go=%v ratio=%s update ours=%v client-go=%v "+
		"ratio=%.2f\n",
		p99Ours, p99Theirs, harness.Ratio(p99Ours, p99Theirs),
		updateOurs, updateTheirs, float64(updateOurs)/float64(updateTheirs))
}

// inTurns runs a benchmark of functions that do n operations each, in turns, and returns
// the processor time of an operation.
func inTurns(b *testing.B, name string, rounds, n int, ours, theirs func()) (o, t time.Duration) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			o, t = harness.Alternate(rounds,
				func() time.Duration { return harness.Cost(n, ours) },
				func() time.Duration { return harness.Cost(n, theirs) })
		}
		reportSides(b, o, t)
	})
	return o, t
}

// storeReport has the values of the benchmark, named after its parts.
var storeReport = harness.Report{Name: "store", Measures: []string{"./store"}}

// reportSides reports the times of both sides and their ratio.
func reportSides(b *testing.B, ours, theirs time.Duration) {
	_, part, _ := strings.Cut(b.Name(), "/")
	storeReport.Value(harness.Key(part)+".ours", float64(ours), "ns")
	storeReport.Value(harness.Key(part)+".client-go", float64(theirs), "ns")
	b.ReportMetric(0, "ns/op") // the loop has both sides and many rounds
	b.ReportMetric(float64(ours), "ours-ns")
	b.ReportMetric(float64(theirs), "client-go-ns")
	b.ReportMetric(float64(theirs)/float64(max(ours, 1)), "client-go/ours")
}

// benchUpdates measures updates in batches of several sizes and returns the costs in
// batches of storeBatch.
func (w *storeWorld) benchUpdates(b *testing.B, ds []delta.Delta[*corev1.Pod]) (batchOurs, batchTheirs time.Duration) {
	for _, batch := range []int{1, 10, storeBatch, 1000} {
		ours, theirs := inTurns(b, fmt.Sprintf("update, a snapshot per %d", batch), 20, len(ds), func() {
			for part := range slices.Chunk(ds, batch) {
				w.ours.Apply(part)
			}
		}, func() {
			for i := range ds {
				w.theirs.Update(ds[i].Key, ds[i].Object)
			}
		})
		if batch == storeBatch {
			batchOurs, batchTheirs = ours, theirs
		}
	}
	return batchOurs, batchTheirs
}

// benchGets measures gets of random pods.
func (w *storeWorld) benchGets(b *testing.B) {
	const gets = 500_000
	// Callers make their keys from names, so these do not share memory with the stored ones.
	order := make([]string, storeObjects)
	for i, at := range rand.Perm(storeObjects) {
		order[i] = strings.Clone(w.keys[at])
	}
	inTurns(b, "get, random", 5, gets, func() {
		for i := range gets {
			w.ours.Get(order[i%storeObjects])
		}
	}, func() {
		for i := range gets {
			w.theirs.Get(order[i%storeObjects])
		}
	})
}

// benchLists measures lists of a namespace and of everything, in both of our stores, and
// lists of a namespace by the index.
func (w *storeWorld) benchLists(b *testing.B) {
	const perNamespace = storeObjects / storeNamespaces
	namespace := func(i int) string { return fmt.Sprintf("namespace-%03d", i%storeNamespaces) }
	theirs := func() {
		for i := range storeLists {
			objs, _ := w.theirs.ByIndex(cache.NamespaceIndex, namespace(i))
			w.visited -= len(objs)
		}
	}
	// Lists of everything are copied into a slice, as client-go's is.
	everything := func(list func() iter.Seq2[string, *corev1.Pod]) func() {
		return func() {
			for range 10 {
				pods := make([]any, 0, storeObjects)
				for _, p := range list() {
					pods = append(pods, p)
				}
				w.visited += len(pods)
			}
		}
	}
	allTheirs := func() {
		for range 10 {
			w.visited -= len(w.theirs.List())
		}
	}
	for _, stored := range []struct {
		how string
		in  *store.Store[*corev1.Pod]
	}{{"", w.ours}, {", stored in random order", w.shuffled}} {
		inTurns(b, fmt.Sprintf("list a namespace of %d%s", perNamespace, stored.how), 5, storeLists, func() {
			for i := range storeLists {
				for range stored.in.Snapshot().Prefix(fmt.Sprintf("namespace-%03d/", i%storeNamespaces)) {
					w.visited++
				}
			}
		}, theirs)
		unordered := func() iter.Seq2[string, *corev1.Pod] { return stored.in.Snapshot().Unordered() }
		inTurns(b, "list everything"+stored.how, 5, 10, everything(unordered), allTheirs)
		inTurns(b, "list everything in key order"+stored.how, 5, 10, everything(stored.in.All), allTheirs)
	}
	inTurns(b, fmt.Sprintf("list %d by an index", perNamespace), 5, storeLists, func() {
		for i := range storeLists {
			for range w.index.Get(w.ours.Snapshot(), namespace(i)) {
				w.visited++
			}
		}
	}, theirs)
}

// benchUnderLoad measures gets while the store is listed and changed.
func (w *storeWorld) benchUnderLoad(b *testing.B, ds []delta.Delta[*corev1.Pod]) (p99Ours, p99Theirs time.Duration) {
	var maxOurs, maxTheirs time.Duration
	b.Run("get p99 beside a lister and 5,000 changes per second", func(b *testing.B) {
		for b.Loop() {
			p99Ours, maxOurs = underLoad(w, ds, func(key string) { w.ours.Get(key) },
				func() {
					for range w.ours.All() {
						w.visited++
					}
				},
				func(part []delta.Delta[*corev1.Pod]) { w.ours.Apply(part) })
			p99Theirs, maxTheirs = underLoad(w, ds, func(key string) { w.theirs.Get(key) },
				func() { w.theirs.List() },
				func(part []delta.Delta[*corev1.Pod]) {
					for i := range part {
						w.theirs.Update(part[i].Key, part[i].Object)
					}
				})
		}
		reportSides(b, p99Ours, p99Theirs)
	})
	b.Run("the same, longest", func(b *testing.B) { reportSides(b, maxOurs, maxTheirs) })
	return p99Ours, p99Theirs
}

// underLoad returns latencies of single gets while a reader lists everything in a loop
// and a writer applies 5,000 changes per second, in a batch per millisecond.
func underLoad(
	w *storeWorld, ds []delta.Delta[*corev1.Pod], get func(string), list func(), apply func([]delta.Delta[*corev1.Pod]),
) (p99, longest time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for ctx.Err() == nil {
			list()
		}
	})
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		start, done := time.Now(), 0
		for ctx.Err() == nil {
			<-tick.C
			due := int(time.Since(start).Seconds() * 5000)
			for done < due {
				n := min(due-done, 100)
				at := done % (len(ds) - 100)
				apply(ds[at : at+n])
				done += n
			}
		}
	})
	// Gets come at random moments. Without a pause, most of them would happen while
	// nothing is in their way.
	var times harness.Latencies
	for ctx.Err() == nil {
		key := w.keys[rand.IntN(len(w.keys))]
		time.Sleep(rand.N(time.Millisecond))
		start := time.Now()
		get(key)
		times = append(times, time.Since(start))
	}
	_, p99, longest = times.Quantiles()
	return p99, longest
}
