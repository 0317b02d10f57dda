// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/wire"
)

// The namespaces differ in what follows a common prefix, before and after "/" in the
// order of keys. "" is that of objects without a namespace. The last is always empty.
var selectNamespaces = []string{"", "a", "a-b", "a.b", "a0", "ab", "b", "none"}

var (
	selectKeys   = []string{"app", "tier", "example.com/app", "ap"}
	selectValues = []string{"", "web", "db", "we", "a<b", "\"é\\", "3", "10"}
)

// randomPods returns n pods, encoded, with random namespaces and labels.
func randomPods(t *testing.T, rng *rand.Rand, encoding wire.Encoding, n int) []delta.Delta[*wire.Object] {
	t.Helper()
	deltas := make([]delta.Delta[*wire.Object], 0, n)
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: selectNamespaces[rng.IntN(len(selectNamespaces)-1)], Name: fmt.Sprintf("p%d", i),
			ResourceVersion: strconv.Itoa(i + 1),
			Annotations:     map[string]string{"app": "web"},
		}}
		// Other maps with the same keys must not be read as labels.
		p.Spec.NodeSelector = map[string]string{"tier": "db"}
		for _, key := range selectKeys {
			if rng.IntN(2) == 0 {
				metav1.SetMetaDataLabel(&p.ObjectMeta, key, selectValues[rng.IntN(len(selectValues))])
			}
		}
		o, err := wire.Encode(p, encoding, podKind)
		if err != nil {
			t.Fatal(err)
		}
		deltas = append(deltas, delta.Delta[*wire.Object]{
			Type: delta.Added, Key: o.Key(), Object: o, Version: o.Version(),
		})
	}
	return deltas
}

// randomSelector returns a selector of up to three requirements, and nil now and then.
func randomSelector(t *testing.T, rng *rand.Rand) labels.Selector {
	t.Helper()
	switch rng.IntN(10) {
	case 0:
		return nil
	case 1:
		return labels.Nothing()
	}
	selector := labels.NewSelector()
	for range rng.IntN(4) {
		op, values := selection.Exists, []string(nil)
		switch rng.IntN(6) {
		case 0:
			op = selection.DoesNotExist
		case 1:
			op, values = selection.In, []string{"web", "db"}
		case 2:
			op, values = selection.NotIn, []string{"", "web"}
		case 3:
			op, values = selection.Equals, []string{"web"}
		case 4:
			op, values = selection.GreaterThan, []string{"3"}
		}
		r, err := labels.NewRequirement(selectKeys[rng.IntN(len(selectKeys))], op, values)
		if err != nil {
			t.Fatal(err)
		}
		selector = selector.Add(*r)
	}
	return selector
}

// selected returns the keys that Select has to yield, from decoded objects.
func selected(all iter.Seq2[string, *corev1.Pod], namespace string, selector labels.Selector) []string {
	var keys []string
	for key, p := range all {
		if (namespace == "" || p.Namespace == namespace) &&
			(selector == nil || selector.Matches(labels.Set(p.Labels))) {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestSelect_decodesMatchesOnly compares Select with decoding everything, and counts the
// decodings.
func TestSelect_decodesMatchesOnly(t *testing.T) {
	rng := random(t)
	for _, encoding := range []wire.Encoding{wire.JSON, wire.Protobuf} {
		for _, memory := range []watershed.Memory{watershed.Fast, watershed.Packed} {
			var decoded []string
			pods := watershed.FromSourceWith(newServer(),
				watershed.Codec[*corev1.Pod]{Decode: func(o *wire.Object) (*corev1.Pod, error) {
					decoded = append(decoded, o.Key())
					return wire.DecodeFresh[*corev1.Pod](o)
				}}, &watershed.SourceOptions[*corev1.Pod]{Memory: memory, Reflector: patient})
			stop := running(t, pods.Run)
			<-pods.Synced()
			pods.Write(randomPods(t, rng, encoding, 300)...)
			truth := watershed.FromSource[*corev1.Pod](newServer(), nil)
			for key, o := range pods.Snapshot().Raw() {
				truth.Write(delta.Delta[*wire.Object]{Type: delta.Added, Key: key, Object: o, Version: o.Version()})
			}
			if memory == watershed.Packed {
				watershed.Settle(pods)
			}
			for range 200 {
				namespace, selector := selectNamespaces[rng.IntN(len(selectNamespaces))], randomSelector(t, rng)
				want := selected(truth.All(), namespace, selector)
				var got []string
				decoded = nil
				for key, p := range pods.Select(namespace, selector) {
					got = append(got, key)
					if p.Name == "" {
						t.Errorf("%s is not decoded", key)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("namespace %q and selector %q yield %q, want %q (encoding %v, memory %v)", namespace,
						selector, got, want, encoding, memory)
				}
				for _, key := range decoded {
					if !slices.Contains(want, key) {
						t.Fatalf("namespace %q and selector %q decode %s, which does not match (encoding %v, memory "+
							"%v)", namespace, selector, key, encoding, memory)
					}
				}
			}
			stop()
		}
	}
}

// TestSelect_ofALease reads from a factory, and stops at the first object.
func TestSelect_ofALease(t *testing.T) {
	rng := random(t)
	f := watershed.NewFactory(clusterOf(t, new(asked)), nil)
	pods, err := watershed.Shared[*corev1.Pod](f, nil)
	if err != nil {
		t.Fatal(err)
	}
	running(t, f.Run)
	if err := pods.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods.Write(randomPods(t, rng, wire.Protobuf, 100)...)
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	var first []*corev1.Pod
	for _, p := range pods.Select("a", selector) {
		first = append(first, p)
		break
	}
	var held []string
	for key, o := range pods.Snapshot().Raw() {
		if _, ok := wire.Held[*corev1.Pod](o); ok {
			held = append(held, key)
		}
	}
	want := selected(pods.All(), "a", selector)
	expect.Equal(t, held, want[:min(1, len(want))])
	expect.Equal(t, len(first), len(held))
}
