// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/watershed-project/watershed/wire"
)

// retained returns how many of the objects are still in memory.
func retained(objects []weak.Pointer[wire.Object]) int {
	runtime.GC()
	runtime.GC()
	n := 0
	for _, o := range objects {
		if o.Value() != nil {
			n++
		}
	}
	return n
}

// states returns weak pointers to the current objects of a cluster.
func (w *world) states(cluster string) []weak.Pointer[wire.Object] {
	var all []weak.Pointer[wire.Object]
	for _, o := range w.mirrors[cluster].informer.Snapshot().Raw() {
		all = append(all, weak.Make(o))
	}
	return all
}

// drain reads all remaining changes.
func drain(t *testing.T, f *Follower[*wire.Object]) {
	t.Helper()
	for {
		changes, err := f.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		if changes == nil {
			return
		}
		for range changes {
			continue
		}
	}
}

func TestFollower_doesNotRetainOldStates(t *testing.T) {
	var names []string
	for n := range 50 {
		names = append(names, fmt.Sprint(n))
	}
	for _, clusters := range [][]string{nil, {"quiet"}, {"quiet", "still"}, {"busy"}, {"busy", "quiet"}} {
		t.Run(fmt.Sprint(clusters), func(t *testing.T) {
			w := newWorld(t, 1)
			defer w.close()
			w.join("busy", names...)
			w.join("quiet", "x")
			w.join("still", "x")
			view := OfResource[*wire.Object](w.fleet, w.c.Resource())
			if clusters != nil {
				view = view.In(clusters...)
			}
			_, f := view.Follow()
			old := w.states("busy")
			// More changes than the log keeps for slow readers, so that only the
			// reader can retain the old states, and fewer than make it renew its
			// base because of their number.
			for range 4 {
				for _, name := range names {
					w.put("busy", name)
					drain(t, f)
				}
				w.put("quiet", "x")
				drain(t, f)
			}
			if n := retained(old); n > 0 {
				t.Errorf("a reader that has caught up retains %d of %d old states of the busy cluster", n, len(old))
			}
			var got []string
			for _, c := range f.inner.Base().Clusters {
				got = append(got, c.Cluster)
				if c.State != w.mirrors[c.Cluster].informer.Snapshot() {
					t.Errorf("the base has an old state of %s", c.Cluster)
				}
			}
			want := clusters
			if clusters == nil {
				want = []string{"busy", "quiet", "still"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the base has the clusters %v, not %v", got, want)
			}
			runtime.KeepAlive(f)
		})
	}
}

func TestCollection_retainsNothingForReadersThatLeft(t *testing.T) {
	w := newWorld(t, 1)
	defer w.close()
	var names []string
	for n := range 50 {
		names = append(names, fmt.Sprint(n))
	}
	w.c.Keep = 10
	w.join("eu", names...)
	func() {
		_, f := OfResource[*wire.Object](w.fleet, w.c.Resource()).Follow()
		for _, name := range names {
			w.put("eu", name)
			drain(t, f)
		}
	}()
	old := w.states("eu")
	for range 4 {
		for _, name := range names {
			w.put("eu", name)
		}
	}
	if n := retained(old); n > 0 {
		t.Errorf("%d of %d old states are retained without a reader", n, len(old))
	}
}

// TestCollection_sharesSnapshots checks that readers of all clusters at the same revision
// share one snapshot.
func TestCollection_sharesSnapshots(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	w.join("eu", "a")
	view := OfResource[*wire.Object](w.fleet, w.c.Resource())
	_, a := view.Follow()
	_, b := view.Follow()
	if a.inner.Base() != b.inner.Base() {
		t.Error("two readers that begin at the same revision have a snapshot each")
	}
	w.put("eu", "a")
	drain(t, a)
	drain(t, b)
	if a.inner.Base() != b.inner.Base() {
		t.Error("two readers that have caught up have a snapshot each")
	}
}
