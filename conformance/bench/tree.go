// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	gbtree "github.com/google/btree"
	iradix "github.com/hashicorp/go-immutable-radix/v2"
	tbtree "github.com/tidwall/btree"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// object stands for the object that a record points to.
type object struct{ _ [8]byte }

// record is what the store keeps for a key: the object and the revision of its last
// change, by which two snapshots are compared.
type record struct {
	obj *object
	rev uint64
}

// tree is the interface that the benchmark needs of a library.
type tree interface {
	set(key string, r record)
	del(key string)
	// publish makes earlier changes visible to readers as an immutable snapshot.
	publish()
	get(key string) (record, bool)
	scan(prefix string) int
}

type treeKind struct {
	name string
	make func() tree
}

var treeKinds = []treeKind{
	{"tidwall Map, degree 8", func() tree { return newTidwall(8) }},
	{"tidwall Map, degree 16", func() tree { return newTidwall(16) }},
	{"tidwall Map, degree 32", func() tree { return newTidwall(32) }},
	{"tidwall Map, degree 16, pointers", func() tree { return newTidwallPointers(16) }},
	{"google BTreeG, degree 8", func() tree { return newGoogle(8) }},
	{"google BTreeG, degree 16", func() tree { return newGoogle(16) }},
	{"google BTreeG, degree 32", func() tree { return newGoogle(32) }},
	{"google BTreeG, degree 32, pointers", func() tree { return newGooglePointers(32) }},
	{"hashicorp immutable radix", func() tree { return newRadix() }},
	{"as built: tree of keys, table of records", func() tree { return newBuilt() }},
}

// built is the store itself, without indexes.
type built struct {
	s     *store.Store[*keyed]
	batch []delta.Delta[*keyed]
}

type keyed struct{ key string }

func newBuilt() *built { return &built{s: store.New(func(k *keyed) string { return k.key }, nil)} }
func (b *built) set(key string, _ record) {
	b.batch = append(b.batch, delta.Delta[*keyed]{Type: delta.Updated, Key: key, Object: &keyed{}})
}
func (b *built) del(key string) {
	b.batch = append(b.batch, delta.Delta[*keyed]{Type: delta.Deleted, Key: key})
}
func (b *built) publish() {
	b.s.Apply(b.batch)
	b.batch = b.batch[:0]
	if cap(b.batch) > 10_000 {
		b.batch = nil // the batch of the first fill must not count as the store's memory
	}
}
func (b *built) get(key string) (record, bool) {
	_, ok := b.s.Get(key)
	return record{}, ok
}
func (b *built) scan(prefix string) int {
	n := 0
	for range b.s.Snapshot().Prefix(prefix) {
		n++
	}
	return n
}

type tidwall struct{ w, r *tbtree.Map[string, record] }

func newTidwall(degree int) *tidwall {
	t := &tidwall{w: tbtree.NewMap[string, record](degree)}
	t.publish()
	return t
}
func (t *tidwall) set(key string, r record)      { t.w.Set(key, r) }
func (t *tidwall) del(key string)                { t.w.Delete(key) }
func (t *tidwall) publish()                      { t.r = t.w.Copy() }
func (t *tidwall) get(key string) (record, bool) { return t.r.Get(key) }
func (t *tidwall) scan(prefix string) int {
	n := 0
	t.r.Ascend(prefix, func(key string, _ record) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		n++
		return true
	})
	return n
}

type tidwallPointers struct{ w, r *tbtree.Map[string, *record] }

func newTidwallPointers(degree int) *tidwallPointers {
	t := &tidwallPointers{w: tbtree.NewMap[string, *record](degree)}
	t.publish()
	return t
}
func (t *tidwallPointers) set(key string, r record) { t.w.Set(key, &r) }
func (t *tidwallPointers) del(key string)           { t.w.Delete(key) }
func (t *tidwallPointers) publish()                 { t.r = t.w.Copy() }
func (t *tidwallPointers) get(key string) (record, bool) {
	r, ok := t.r.Get(key)
	if !ok {
		return record{}, false
	}
	return *r, true
}
func (t *tidwallPointers) scan(prefix string) int {
	n := 0
	t.r.Ascend(prefix, func(key string, r *record) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		n += int(r.rev&1 | 1)
		return true
	})
	return n
}

type item struct {
	key string
	record
}

type google struct{ w, r *gbtree.BTreeG[item] }

func newGoogle(degree int) *google {
	g := &google{w: gbtree.NewG(degree, func(a, b item) bool { return a.key < b.key })}
	g.publish()
	return g
}
func (g *google) set(key string, r record) { g.w.ReplaceOrInsert(item{key, r}) }
func (g *google) del(key string)           { g.w.Delete(item{key: key}) }
func (g *google) publish()                 { g.r = g.w.Clone() }
func (g *google) get(key string) (record, bool) {
	it, ok := g.r.Get(item{key: key})
	return it.record, ok
}
func (g *google) scan(prefix string) int {
	n := 0
	g.r.AscendGreaterOrEqual(item{key: prefix}, func(it item) bool {
		if !strings.HasPrefix(it.key, prefix) {
			return false
		}
		n++
		return true
	})
	return n
}

type googlePointers struct{ w, r *gbtree.BTreeG[*item] }

func newGooglePointers(degree int) *googlePointers {
	g := &googlePointers{w: gbtree.NewG(degree, func(a, b *item) bool { return a.key < b.key })}
	g.publish()
	return g
}
func (g *googlePointers) set(key string, r record) { g.w.ReplaceOrInsert(&item{key, r}) }
func (g *googlePointers) del(key string)           { g.w.Delete(&item{key: key}) }
func (g *googlePointers) publish()                 { g.r = g.w.Clone() }
func (g *googlePointers) get(key string) (record, bool) {
	it, ok := g.r.Get(&item{key: key})
	if !ok {
		return record{}, false
	}
	return it.record, true
}
func (g *googlePointers) scan(prefix string) int {
	n := 0
	g.r.AscendGreaterOrEqual(&item{key: prefix}, func(it *item) bool {
		if !strings.HasPrefix(it.key, prefix) {
			return false
		}
		n++
		return true
	})
	return n
}

type radix struct {
	w *iradix.Txn[record]
	r *iradix.Tree[record]
}

func newRadix() *radix {
	r := &radix{r: iradix.New[record]()}
	r.w = r.r.Txn()
	return r
}
func (x *radix) set(key string, r record)      { x.w.Insert([]byte(key), r) }
func (x *radix) del(key string)                { x.w.Delete([]byte(key)) }
func (x *radix) publish()                      { x.r = x.w.CommitOnly(); x.w = x.r.Txn() }
func (x *radix) get(key string) (record, bool) { return x.r.Get([]byte(key)) }
func (x *radix) scan(prefix string) int {
	it := x.r.Root().Iterator()
	it.SeekPrefix([]byte(prefix))
	n := 0
	for {
		if _, _, ok := it.Next(); !ok {
			return n
		}
		n++
	}
}

const treeObjects = 100_000

// treeWorld has a tree for the objects and one for each index. An index entry is a key
// "value\x00object key" without a record.
type treeWorld struct {
	objects tree
	indexes []tree
	keys    []string
	// values has, for each index, the value of each object.
	values [][]int
	rng    *rand.Rand
	obj    *object
	rev    uint64
}

func newTreeWorld(k treeKind, perNamespace, indexes int) *treeWorld {
	w := &treeWorld{objects: k.make(), rng: rand.New(rand.NewPCG(1, 2)), obj: &object{}}
	for range indexes {
		w.indexes = append(w.indexes, k.make())
		w.values = append(w.values, make([]int, treeObjects))
	}
	for i := range treeObjects {
		key := fmt.Sprintf("namespace-%04d/deployment-%05x-%05d", i/perNamespace, (i*7919)%0xfffff, i)
		w.keys = append(w.keys, key)
		w.objects.set(key, record{obj: w.obj})
		for n, t := range w.indexes {
			w.values[n][i] = i % 500
			t.set(entry(i%500, key), record{})
		}
	}
	w.publish()
	return w
}

func entry(value int, key string) string { return fmt.Sprintf("node-%04d\x00%s", value, key) }

func (w *treeWorld) publish() {
	w.objects.publish()
	for _, t := range w.indexes {
		t.publish()
	}
}

// update changes one object. One change in ten moves it to another value in each
// index, which is far more often than pods change their node or labels.
func (w *treeWorld) update() {
	i := w.rng.IntN(len(w.keys))
	w.rev++
	w.objects.set(w.keys[i], record{obj: w.obj, rev: w.rev})
	if w.rng.IntN(10) != 0 {
		return
	}
	for n, t := range w.indexes {
		old := w.values[n][i]
		w.values[n][i] = w.rng.IntN(500)
		t.del(entry(old, w.keys[i]))
		t.set(entry(w.values[n][i], w.keys[i]), record{})
	}
}

// benchTree measures the trees between which the store had to choose.
func benchTree(out io.Writer) error {
	for _, perNamespace := range []int{100, 100_000} {
		fmt.Fprintf(out, "\n%d objects, namespaces of %d; ns of CPU time per update with a snapshot per batch of 1 / 10 / 100 / 1000\n\n", treeObjects, perNamespace)
		tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "| tree\t| no index\t| 1 index\t| 3 indexes\t| get, ns\t| list 100, us\t| heap B/object\t|")
		fmt.Fprintln(tw, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
		for _, k := range treeKinds {
			fmt.Fprintf(tw, "| %s", k.name)
			for _, indexes := range []int{0, 1, 3} {
				w := newTreeWorld(k, perNamespace, indexes)
				var cells []string
				for _, batch := range []int{1, 10, 100, 1000} {
					cells = append(cells, fmt.Sprint(best(3, func() time.Duration { return w.updateCost(batch) }).Nanoseconds()))
				}
				fmt.Fprintf(tw, "\t| %s", strings.Join(cells, " / "))
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			w := newTreeWorld(k, perNamespace, 0)
			runtime.GC()
			runtime.ReadMemStats(&after)
			get := best(3, w.getCost)
			list := best(3, w.listCost)
			// The keys of the world itself are subtracted: a header and the bytes.
			heap := (float64(after.HeapAlloc)-float64(before.HeapAlloc))/treeObjects - 16 - 48
			fmt.Fprintf(tw, "\t| %d\t| %.1f\t| %.0f\t|\n", get.Nanoseconds(), float64(list.Nanoseconds())/1000, heap)
			runtime.KeepAlive(w)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (w *treeWorld) updateCost(batch int) time.Duration {
	const updates = 20_000
	runtime.GC()
	return harness.Cost(updates, func() {
		for done := 0; done < updates; done += batch {
			for range batch {
				w.update()
			}
			w.publish()
		}
	})
}

func (w *treeWorld) getCost() time.Duration {
	const gets = 200_000
	return harness.Cost(gets, func() {
		for range gets {
			w.objects.get(w.keys[w.rng.IntN(len(w.keys))])
		}
	})
}

// listCost returns the time to walk a hundred objects.
func (w *treeWorld) listCost() time.Duration {
	prefix := w.keys[0][:strings.IndexByte(w.keys[0], '/')+1]
	perList := w.objects.scan(prefix)
	lists := max(500_000/perList, 1)
	return 100 * harness.Cost(lists*perList, func() {
		for range lists {
			w.objects.scan(prefix)
		}
	})
}

// best returns the smallest of n measurements: noise of the machine only adds.
func best(n int, f func() time.Duration) time.Duration {
	least := f()
	for range n - 1 {
		least = min(least, f())
	}
	return least
}
