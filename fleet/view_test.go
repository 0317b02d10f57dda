// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// clustersOf returns the clusters of which a view has objects, by each way to read it.
func clustersOf(t *testing.T, v *View[*wire.Object], x *Index[*wire.Object, string]) map[string][]string {
	t.Helper()
	ways := map[string][]string{
		"All":          {},
		"Clusters":     {},
		"Get":          {},
		"Snapshot.Get": {},
		"IndexBy":      {},
		"Index.GetIn":  {},
	}
	add := func(way, cluster string) { ways[way] = append(ways[way], cluster) }
	for key := range v.All() {
		add("All", key.Cluster)
	}
	for cluster := range v.Snapshot().Clusters() {
		add("Clusters", cluster)
	}
	own := IndexBy(v, func(o *wire.Object) []string { return []string{o.Name()} })
	defer own.Close()
	for key := range own.Get("a") {
		add("IndexBy", key.Cluster)
	}
	for key := range x.GetIn(v.Snapshot(), "a") {
		add("Index.GetIn", key.Cluster)
	}
	for _, cluster := range []string{"eu", "us", "za"} {
		if _, ok := v.Get(Key{cluster, "n/a"}); ok {
			add("Get", cluster)
		}
		if _, ok := v.Snapshot().Get(Key{cluster, "n/a"}); ok {
			add("Snapshot.Get", cluster)
		}
	}
	return ways
}

func TestView_inSelectsClusters(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	for _, cluster := range []string{"eu", "us", "za"} {
		w.join(cluster, "a")
	}
	all := OfResource[*wire.Object](w.fleet, w.c.Resource())
	index := IndexBy(all, func(o *wire.Object) []string { return []string{o.Name()} })
	for _, test := range []struct {
		name string
		view *View[*wire.Object]
		want []string
	}{
		{"everything", all, []string{"eu", "us", "za"}},
		{"In()", all.In(), []string{}},
		{"In(nil...)", all.In([]string(nil)...), []string{}},
		{"In([]string{}...)", all.In([]string{}...), []string{}},
		{"In(za, eu, eu)", all.In("za", "eu", "eu"), []string{"eu", "za"}},
		{"In(mars)", all.In("mars"), []string{}},
		{"In(eu).In()", all.In("eu").In(), []string{}},
		{"In(eu, us).In(us, za)", all.In("eu", "us").In("us", "za"), []string{"us"}},
		{"In(eu).In(us)", all.In("eu").In("us"), []string{}},
		{"In().In(us)", all.In().In("us"), []string{}},
	} {
		for way, got := range clustersOf(t, test.view, index) {
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: %s reads %v, not %v", test.name, way, got, test.want)
			}
		}
	}
	// An index of fewer clusters does not search the others.
	some := IndexBy(all.In("eu"), func(o *wire.Object) []string { return []string{o.Name()} })
	for key := range some.GetIn(all.Snapshot(), "a") {
		if key.Cluster != "eu" {
			t.Errorf("an index of eu finds %s", key)
		}
	}
}

func TestView_inNothingFollowsNothing(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	w.join("eu", "a")
	view := OfResource[*wire.Object](w.fleet, w.c.Resource())
	revision := view.Snapshot().Revision()
	_, f := view.In().Follow()
	after, err := view.In().FollowAfter(revision, false)
	if err != nil {
		t.Fatal(err)
	}
	w.put("eu", "b")
	w.join("us", "a")
	for _, f := range []*Follower[*wire.Object]{f, after} {
		for {
			changes, err := f.TryNext()
			if err != nil {
				t.Fatal(err)
			}
			if changes == nil {
				break
			}
			for c := range changes {
				t.Errorf("a reader of no cluster reads %s of %s", c.Type, c.Key)
			}
		}
	}
}

func TestNew_refusesAnEmptySelection(t *testing.T) {
	if _, err := New(noDirectory{}, &Options{Resources: []string{}}); err == nil {
		t.Error("a list without patterns is taken for all resources")
	}
}

// TestSelect_decodesMatchesOnly compares Select with decoding everything, for random pods
// of two clusters, and counts the decodings.
func TestSelect_decodesMatchesOnly(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, 1<<20)
	defer w.close()
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	for cluster, encoding := range map[string]wire.Encoding{"eu": wire.JSON, "us": wire.Protobuf} {
		w.join(cluster)
		for i := range 200 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: []string{"a", "a-b", "a0", "b"}[rng.IntN(4)], Name: fmt.Sprint(i),
				ResourceVersion: fmt.Sprint(i + 2),
				Labels: map[string]string{
					"app": []string{"web", "db", ""}[rng.IntN(3)], []string{"x", "y"}[rng.IntN(2)]: "1",
				},
			}}
			o, err := wire.Encode(p, encoding, kind)
			if err != nil {
				t.Fatal(err)
			}
			w.mirrors[cluster].informer.Write(delta.Delta[*wire.Object]{
				Type: delta.Added, Key: o.Key(), Object: o, Version: o.Version(),
			})
		}
	}
	var decoded []string
	view := *OfResource[*corev1.Pod](w.fleet, w.c.Resource())
	view.decode = func(o *wire.Object) (*corev1.Pod, error) {
		decoded = append(decoded, o.Key())
		return wire.DecodeFresh[*corev1.Pod](o)
	}
	snapshot := view.Snapshot()
	for _, namespace := range []string{"", "a", "a-b", "a0", "b", "none"} {
		for _, text := range []string{"", "app=web", "app!=web", "app in (web,db),x", "!x,y=1", "z", "nil"} {
			var selector labels.Selector
			if text != "nil" {
				var err error
				if selector, err = labels.Parse(text); err != nil {
					t.Fatal(err)
				}
			}
			var want, got []Key
			for key, p := range snapshot.All() {
				if (namespace == "" || p.Namespace == namespace) &&
					(selector == nil || selector.Matches(labels.Set(p.Labels))) {
					want = append(want, key)
				}
			}
			decoded = nil
			for key := range snapshot.Select(namespace, selector) {
				got = append(got, key)
			}
			if !slices.Equal(got, want) {
				t.Errorf("namespace %q and selector %q yield %v, want %v", namespace, text, got, want)
			}
			if len(decoded) != len(want) {
				t.Errorf("namespace %q and selector %q decode %d objects, %d match", namespace, text, len(decoded),
					len(want))
			}
		}
	}
}
