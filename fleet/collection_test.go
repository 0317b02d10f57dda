// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// empty is a source without objects, whose watches do not end.
type empty struct{}

func (empty) List(context.Context, reflector.ListOptions, func(*wire.Object) error) (reflector.Page, error) {
	return reflector.Page{Version: "1"}, nil
}
func (empty) Served(context.Context) (bool, error) { return true, nil }
func (empty) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return silent{ctx}, nil
}

type silent struct{ ctx context.Context }

func (s silent) Next() (reflector.Event[*wire.Object], error) {
	<-s.ctx.Done()
	return reflector.Event[*wire.Object]{}, s.ctx.Err()
}
func (silent) Close() error { return nil }

// world is a collection whose mirrors a test writes to, and their expected objects.
type world struct {
	t       *testing.T
	fleet   *Fleet
	c       *collection.Collection
	mirrors map[string]*part
	end     map[string]func()
	truth   map[Key]uint64
	version uint64
	slot    uint64
}

// part is one cluster's part of a world.
type part struct{ informer *collection.Informer }

func newWorld(t *testing.T, window int64) *world {
	return newWorldOf(t, window, collection.NewOwnTerm())
}

// newWorldOf returns a world whose revisions are those of a term.
func newWorldOf(t *testing.T, window int64, term *collection.Term) *world {
	return newWorldIn(t, window, func() *collection.Term { return term })
}

// newWorldIn returns a world whose revisions are those of changing terms.
func newWorldIn(t *testing.T, window int64, terms func() *collection.Term) *world {
	f, err := New(noDirectory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, fleet: f, slot: uint64(terms().Slot()),
		mirrors: map[string]*part{}, end: map[string]func(){}, truth: map[Key]uint64{}, version: 1,
	}
	f.catalog = collection.NewCatalog(window, terms)
	w.c = f.catalog.Collection(schema.GroupResource{Resource: "pods"})
	return w
}

type noDirectory struct{}

func (noDirectory) Follow(context.Context, func([]Entry)) error { return nil }

// join starts a mirror with some objects, beside an existing one if there is one.
func (w *world) join(cluster string, names ...string) {
	x := &part{}
	first := make(chan *collection.Informer, 1)
	var once sync.Once
	x.informer = watershed.FromSource(empty{}, &watershed.SourceOptions[*wire.Object]{
		Memory:    watershed.Fast, // nothing runs it, so nothing would pack what waits
		Window:    1,
		Logger:    slog.New(slog.DiscardHandler),
		Reflector: reflector.Options{ListOnly: true},
		Tap: func(s watershed.Snapshot[*wire.Object], changes []store.Change[*wire.Object], _ bool) {
			if len(changes) == 0 && s.Len() < len(names) {
				return // the first applied state must have all names
			}
			replaced := w.c.Apply(x.informer, s, changes)
			once.Do(func() { first <- replaced })
		},
	})
	w.c.Introduce(cluster, x.informer)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = x.informer.Run(ctx) // returns when ctx ends
	}()
	if err := x.informer.WaitForSync(ctx); err != nil {
		w.t.Fatal(err)
	}
	for key := range w.truth {
		if key.Cluster == cluster {
			delete(w.truth, key)
		}
	}
	var deltas []delta.Delta[*wire.Object]
	for _, name := range names {
		deltas = append(deltas, w.delta(cluster, name))
	}
	if len(deltas) > 0 {
		x.informer.Write(deltas...)
	}
	if old := <-first; old != nil {
		w.c.Forget(cluster, old, true)
		w.end[cluster]()
	} else if w.mirrors[cluster] != nil {
		w.t.Errorf("nothing was replaced in %s", cluster)
	}
	w.mirrors[cluster] = x
	w.end[cluster] = func() {
		cancel()
		<-done
	}
}

func (w *world) delta(cluster, name string) delta.Delta[*wire.Object] {
	w.version++
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: strconv.FormatUint(w.version, 10)},
	}
	o, err := wire.Encode(pod, wire.Protobuf, kind)
	if err != nil {
		w.t.Fatal(err)
	}
	w.truth[Key{cluster, o.Key()}] = w.version
	return delta.Delta[*wire.Object]{Type: delta.Updated, Key: o.Key(), Object: o, Version: w.version}
}

func (w *world) put(cluster, name string) { w.mirrors[cluster].informer.Write(w.delta(cluster, name)) }

func (w *world) delete(cluster, name string) {
	d := w.delta(cluster, name)
	d.Type = delta.Deleted
	delete(w.truth, Key{cluster, d.Key})
	w.mirrors[cluster].informer.Write(d)
}

func (w *world) leave(cluster string) {
	w.c.Forget(cluster, w.mirrors[cluster].informer, false)
	w.end[cluster]()
	delete(w.mirrors, cluster)
	for key := range w.truth {
		if key.Cluster == cluster {
			delete(w.truth, key)
		}
	}
}

func (w *world) close() {
	for _, end := range w.end {
		end()
	}
}

// learner is a reader that pauses now and then.
type learner struct {
	next chan int // how many changes to read, -1 for all
	done chan struct{}

	mu    sync.Mutex
	known map[Key]uint64
	gone  map[Key]uint64
	errs  []string
}

func (w *world) read(clusters ...string) (*learner, func()) {
	l := &learner{known: map[Key]uint64{}, gone: map[Key]uint64{}, next: make(chan int), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	v := OfResource[*wire.Object](w.fleet, w.c.Resource())
	if clusters != nil {
		v = v.In(clusters...)
	}
	go func() {
		defer close(l.done)
		credit := 0
		for c := range v.Watch(ctx) {
			for credit == 0 {
				select {
				case credit = <-l.next:
				case <-ctx.Done():
					return
				}
			}
			if credit > 0 {
				credit--
			}
			l.learn(c, v)
		}
	}()
	return l, func() {
		cancel()
		<-l.done
	}
}

func (l *learner) learn(c Change[*wire.Object], v *View[*wire.Object]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, now := c.Raw()
	had, known := l.known[c.Key]
	again := c.Type != delta.Deleted && (now.Version() == had || now.Version() == l.gone[c.Key])
	if again || known == (c.Type == delta.Added) || known && (old == nil || old.Version() != had) ||
		!v.clusters.Has(c.Key.Cluster) {
		l.errs = append(l.errs, fmt.Sprintf("%s of %s to %d (from %v), known %t at %d", c.Type, c.Key, now.Version(),
			old, known, had))
	}
	l.known[c.Key] = now.Version()
	if c.Type == delta.Deleted {
		l.gone[c.Key] = max(had, now.Version())
		delete(l.known, c.Key)
	}
}

// TestCollection_readersFollow writes at random to clusters that come, go and are
// replaced, beside readers of any speed, and compares the readers' final states.
func TestCollection_readersFollow(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WATERSHED_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("WATERSHED_SEED=%d", seed)
	runs := 60
	if testing.Short() {
		runs = 15
	}
	for run := range runs {
		rng := rand.New(rand.NewPCG(seed, uint64(run)))
		runHistory(t, rng)
		if t.Failed() {
			t.Fatalf("in run %d of WATERSHED_SEED=%d", run, seed)
		}
	}
}

func runHistory(t *testing.T, rng *rand.Rand) {
	w := newWorld(t, []int64{1, 2000, 1 << 20}[rng.IntN(3)])
	w.c.Keep = []int{1, 5, 40, 1000}[rng.IntN(4)]
	defer w.close()
	names := []string{"a", "b", "c", "d", "e"}
	clusters := []string{"eu", "us", "za"}
	interests := [][]string{nil, {"eu"}, {"us", "za"}, nil}
	type reader struct {
		*learner
		stop     func()
		clusters []string
	}
	var readers []reader
	for range 400 {
		cluster := clusters[rng.IntN(len(clusters))]
		there := w.mirrors[cluster] != nil
		switch n := rng.IntN(100); {
		case !there && n < 60:
		case !there:
			w.join(cluster, names[:rng.IntN(len(names))]...)
		case n < 3:
			w.leave(cluster)
		case n < 6:
			w.join(cluster, names[rng.IntN(len(names)):]...)
		case n < 10 && len(readers) < 4:
			some := interests[len(readers)]
			l, stop := w.read(some...)
			readers = append(readers, reader{l, stop, some})
		case n < 25 && len(readers) > 0:
			select {
			case readers[rng.IntN(len(readers))].next <- 1 + rng.IntN(20):
			case <-time.After(time.Millisecond):
			}
		case n < 45:
			w.delete(cluster, names[rng.IntN(len(names))])
		default:
			w.put(cluster, names[rng.IntN(len(names))])
		}
	}
	for _, r := range readers {
		want := map[Key]uint64{}
		for key, v := range w.truth {
			if len(r.clusters) == 0 || slices.Contains(r.clusters, key.Cluster) {
				want[key] = v
			}
		}
		r.caughtUp(want)
		r.stop()
		if len(r.errs) > 0 {
			t.Errorf("reader of %v: %v", r.clusters, r.errs)
		}
		if !maps.Equal(r.known, want) {
			t.Errorf("reader of %v knows %v, there is %v", r.clusters, r.known, want)
		}
	}
	got := map[Key]uint64{}
	for key, o := range OfResource[*wire.Object](w.fleet, w.c.Resource()).All() {
		got[key] = o.Version()
	}
	if !maps.Equal(got, w.truth) {
		t.Errorf("read %v, there is %v", got, w.truth)
	}
}

// caughtUp lets a reader continue until it has the wanted state, for 5 seconds at most.
func (l *learner) caughtUp(want map[Key]uint64) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		l.mu.Lock()
		equal := maps.Equal(l.known, want)
		l.mu.Unlock()
		if equal {
			return
		}
		select {
		case l.next <- -1:
		case <-time.After(time.Millisecond):
		}
	}
}

func TestIndex_findsInAllClusters(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	w.join("eu", "a", "b")
	v := OfResource[*wire.Object](w.fleet, w.c.Resource())
	x := IndexBy(v, func(o *wire.Object) []string {
		if o.Name() == "e" {
			panic("no")
		}
		return []string{o.Name()}
	})
	w.join("us", "b", "c", "e")
	search := func(x *Index[*wire.Object, string], value string) (keys []string) {
		for key := range x.Get(value) {
			keys = append(keys, key.String())
		}
		return keys
	}
	want := func(value string, keys ...string) {
		t.Helper()
		if got := search(x, value); !slices.Equal(got, keys) {
			t.Errorf("%s is at %v, not at %v", value, got, keys)
		}
	}
	// The state from before the index includes the index now.
	if state, _ := w.c.State("eu"); state != w.mirrors["eu"].informer.Snapshot() {
		t.Error("the state of eu is one without the index")
	}
	want("b", "eu/n/b", "us/n/b")
	want("c", "us/n/c")
	want("e")
	before := v.Snapshot()
	ranges := map[string][]string{
		"": {"eu/n/b", "us/n/b"}, "eu/n/a": {"eu/n/b", "us/n/b"}, "eu/n/b": {"us/n/b"}, "fr/x": {"us/n/b"},
		"us/n/b": nil, "za/": nil,
	}
	wantRanges := func() {
		t.Helper()
		for after, keys := range ranges {
			cluster, object, _ := strings.Cut(after, "/")
			var got []string
			for key := range x.Range(before, "b", "n/", Key{cluster, object}) {
				got = append(got, key.String())
			}
			if !slices.Equal(got, keys) {
				t.Errorf("after %q b is at %v, not at %v", after, got, keys)
			}
			for range x.Range(before, "b", "o/", Key{cluster, object}) {
				t.Errorf("after %q b is in the wrong namespace", after)
			}
		}
	}
	wantRanges()
	w.leave("us")
	wantRanges() // the index of us is gone, its objects are searched
	want("b", "eu/n/b")
	var old []string
	for key := range x.GetIn(before, "b") {
		old = append(old, key.String())
	}
	if !slices.Equal(old, []string{"eu/n/b", "us/n/b"}) {
		t.Errorf("at the moment before b was at %v", old)
	}
	w.join("eu", "b", "d")
	want("a")
	want("d", "eu/n/d")
	x.Close()
	w.join("za", "b") // is not indexed, and causes no error
}
