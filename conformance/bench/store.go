// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
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
		theirs:   cache.NewThreadSafeStore(cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, cache.Indices{}),
	}
	w.index = store.NewIndex(w.ours, "namespace", func(p *corev1.Pod) ([]string, error) { return []string{p.Namespace}, nil })
	for i := range storeObjects {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("namespace-%03d", i/(storeObjects/storeNamespaces)), Name: fmt.Sprintf("deployment-%05d-%05x", i, i*7919%0xfffff), ResourceVersion: "1",
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

// benchStore measures the operations of the store.
func benchStore(out io.Writer) error {
	w, err := newStoreWorld()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d pods in %d namespaces, one index; CPU time per operation with the garbage collector's, means of several rounds\n\n", storeObjects, storeNamespaces)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "| \t| ours\t| client-go\t| client-go / ours\t|")
	fmt.Fprintln(tw, "|---\t|---\t|---\t|---\t|")
	row := func(name string, ours, theirs time.Duration) {
		fmt.Fprintf(tw, "| %s\t| %v\t| %v\t| %s\t|\n", name, ours, theirs, harness.Ratio(ours, theirs))
	}
	ds := w.updates(storeUpdates)
	updateOurs, updateTheirs := w.measureUpdates(ds, row)
	w.measureGets(row)
	w.measureLists(row)
	w.measureIndex(row)
	if w.visited != 0 {
		return fmt.Errorf("the two stores listed different numbers of pods: %d apart", w.visited)
	}
	ours, theirs := harness.Alternate(3,
		func() time.Duration { return harness.Cost(1, func() { _ = w.replaceOurs() }) },
		func() time.Duration { return harness.Cost(1, w.replaceTheirs) })
	row("replace everything", ours, theirs)
	p99Ours, p99Theirs := w.measureUnderLoad(ds, row)
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nstore: get-p99-under-load ours=%v client-go=%v ratio=%s update ours=%v client-go=%v ratio=%.2f\n",
		p99Ours, p99Theirs, harness.Ratio(p99Ours, p99Theirs), updateOurs, updateTheirs, float64(updateOurs)/float64(updateTheirs))
	return nil
}

// storeRow adds a row to the table.
type storeRow func(name string, ours, theirs time.Duration)

// measureUpdates measures updates in batches of several sizes and returns the costs in
// batches of storeBatch.
func (w *storeWorld) measureUpdates(ds []delta.Delta[*corev1.Pod], row storeRow) (batchOurs, batchTheirs time.Duration) {
	updateTheirs := func() time.Duration {
		return harness.Cost(len(ds), func() {
			for i := range ds {
				w.theirs.Update(ds[i].Key, ds[i].Object)
			}
		})
	}
	for _, batch := range []int{1, 10, storeBatch, 1000} {
		ours, theirs := harness.Alternate(20, func() time.Duration {
			return harness.Cost(len(ds), func() {
				for b := range slices.Chunk(ds, batch) {
					w.ours.Apply(b)
				}
			})
		}, updateTheirs)
		row(fmt.Sprintf("update, a snapshot per %d", batch), ours, theirs)
		if batch == storeBatch {
			batchOurs, batchTheirs = ours, theirs
		}
	}
	return batchOurs, batchTheirs
}

// measureGets measures gets of random pods.
func (w *storeWorld) measureGets(row storeRow) {
	const gets = 500_000
	// Callers make their keys from names, so these do not share memory with the stored ones.
	order := make([]string, storeObjects)
	for i, at := range rand.Perm(storeObjects) {
		order[i] = strings.Clone(w.keys[at])
	}
	ours, theirs := harness.Alternate(5,
		func() time.Duration {
			return harness.Cost(gets, func() {
				for i := range gets {
					w.ours.Get(order[i%storeObjects])
				}
			})
		}, func() time.Duration {
			return harness.Cost(gets, func() {
				for i := range gets {
					w.theirs.Get(order[i%storeObjects])
				}
			})
		})
	row("get, random", ours, theirs)
}

// measureLists measures lists of a namespace and of everything, in both of our stores.
func (w *storeWorld) measureLists(row storeRow) {
	for _, stored := range []struct {
		how string
		in  *store.Store[*corev1.Pod]
	}{{"", w.ours}, {", stored in random order", w.shuffled}} {
		ours, theirs := harness.Alternate(5,
			func() time.Duration {
				return harness.Cost(storeLists, func() {
					for i := range storeLists {
						for range stored.in.Snapshot().Prefix(fmt.Sprintf("namespace-%03d/", i%storeNamespaces)) {
							w.visited++
						}
					}
				})
			}, w.listTheirs)
		row(fmt.Sprintf("list a namespace of %d%s", storeObjects/storeNamespaces, stored.how), ours, theirs)
		ours, theirs = harness.Alternate(5, w.listOurs(func() iter.Seq2[string, *corev1.Pod] { return stored.in.Snapshot().Unordered() }), w.listAllTheirs)
		row("list everything"+stored.how, ours, theirs)
		ours, theirs = harness.Alternate(5, w.listOurs(stored.in.All), w.listAllTheirs)
		row("list everything in key order"+stored.how, ours, theirs)
	}
}

// listOurs returns a measurement of a list of everything that is copied into a slice, as
// client-go's list is.
func (w *storeWorld) listOurs(list func() iter.Seq2[string, *corev1.Pod]) func() time.Duration {
	return func() time.Duration {
		return harness.Cost(10, func() {
			for range 10 {
				pods := make([]any, 0, storeObjects)
				for _, p := range list() {
					pods = append(pods, p)
				}
				w.visited += len(pods)
			}
		})
	}
}

// listAllTheirs lists everything from client-go's store, in random order.
func (w *storeWorld) listAllTheirs() time.Duration {
	return harness.Cost(10, func() {
		for range 10 {
			w.visited -= len(w.theirs.List())
		}
	})
}

// measureIndex measures lists of a namespace by the index.
func (w *storeWorld) measureIndex(row storeRow) {
	ours, theirs := harness.Alternate(5,
		func() time.Duration {
			return harness.Cost(storeLists, func() {
				for i := range storeLists {
					for range w.index.Get(w.ours.Snapshot(), fmt.Sprintf("namespace-%03d", i%storeNamespaces)) {
						w.visited++
					}
				}
			})
		}, w.listTheirs)
	row(fmt.Sprintf("list %d by an index", storeObjects/storeNamespaces), ours, theirs)
}

// listTheirs lists one namespace after the other from client-go's store.
func (w *storeWorld) listTheirs() time.Duration {
	return harness.Cost(storeLists, func() {
		for i := range storeLists {
			objs, _ := w.theirs.ByIndex(cache.NamespaceIndex, fmt.Sprintf("namespace-%03d", i%storeNamespaces))
			w.visited -= len(objs)
		}
	})
}

// measureUnderLoad measures gets while the store is listed and changed.
func (w *storeWorld) measureUnderLoad(ds []delta.Delta[*corev1.Pod], row storeRow) (p99Ours, p99Theirs time.Duration) {
	p99Ours, maxOurs := underLoad(w, ds, func(key string) { w.ours.Get(key) },
		func() {
			for range w.ours.All() {
				w.visited++
			}
		},
		func(b []delta.Delta[*corev1.Pod]) { w.ours.Apply(b) })
	p99Theirs, maxTheirs := underLoad(w, ds, func(key string) { w.theirs.Get(key) },
		func() { w.theirs.List() },
		func(b []delta.Delta[*corev1.Pod]) {
			for i := range b {
				w.theirs.Update(b[i].Key, b[i].Object)
			}
		})
	row("get p99 beside a lister and 5,000 changes/s", p99Ours, p99Theirs)
	row("the same, longest", maxOurs, maxTheirs)
	return p99Ours, p99Theirs
}

// underLoad returns latencies of single gets while a reader lists everything in a loop
// and a writer applies 5,000 changes per second, in a batch per millisecond.
func underLoad(w *storeWorld, ds []delta.Delta[*corev1.Pod], get func(string), list func(), apply func([]delta.Delta[*corev1.Pod])) (p99, longest time.Duration) {
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
