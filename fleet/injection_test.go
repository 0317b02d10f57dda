// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

func verifySeed(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WATERSHED_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("WATERSHED_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// verified returns a simulated cluster and its member in a fleet that has synced. Config may
// change the access to the cluster.
func verified(
	t *testing.T, sim *simulated.Options, opts *fleet.Options, config func(*rest.Config),
) (*simulated.Cluster, *fleet.Member, *fleet.Fleet) {
	t.Helper()
	c := simulate(t, sim).Cluster(0)
	cfg := c.Config()
	if config != nil {
		config(cfg)
	}
	r := newRoster()
	r.set("one", cfg)
	opts.Resources, opts.Logger = []string{"pods", "namespaces"}, quiet
	f := start(t, r, opts)
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := f.Member("one")
	return c, m, f
}

// verify verifies the pods of a member.
func verifyCopy(t *testing.T, m *fleet.Member, opts fleet.VerifyOptions) *fleet.Verification {
	t.Helper()
	opts.Examples = 10_000
	v, err := m.Verify(t.Context(), podResource, opts)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// edited returns an object with another content.
func edited(t *testing.T, o *wire.Object, edit func(*corev1.Pod)) *wire.Object {
	t.Helper()
	pod, err := wire.DecodeFresh[*corev1.Pod](o)
	if err != nil {
		t.Fatal(err)
	}
	edit(pod)
	next, err := wire.Encode(pod, o.Encoding(), o.Kind())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// injection is a divergence that a test has put into a copy. Content means that only a deep
// comparison can find it.
type injection struct {
	verify.Divergence
	content bool
}

// inject puts n divergences of each kind into the copy of the pods that may be used, half
// of the wrong ones in the UID and half in the content.
func inject(
	t *testing.T, random *rand.Rand, m *fleet.Member, n int, ahead bool, usable func(key string) bool,
) []injection {
	t.Helper()
	copied, now := m.Copied(podResource)
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(copied)), func(key string) bool { return !usable(key) })
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	var all []injection
	var deltas []delta.Delta[*wire.Object]
	put := func(kind verify.DivergenceKind, server uint64, o *wire.Object, content bool) {
		all = append(all, injection{
			verify.Divergence{Kind: kind, Key: o.Key(), Server: server, Copy: o.Version()},
			content,
		})
		// Missed makes the store accept an older state.
		deltas = append(deltas, delta.Delta[*wire.Object]{
			Type: delta.Updated, Missed: true, Key: o.Key(), Object: o, Version: o.Version(),
		})
	}
	version := func(v uint64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.ResourceVersion = strconv.FormatUint(v, 10) }
	}
	for i := range n {
		o := copied[keys[5*i]]
		all = append(all, injection{
			verify.Divergence{Kind: verify.DivergenceMissing, Key: o.Key(), Server: o.Version()},
			false,
		})
		deltas = append(deltas, delta.Delta[*wire.Object]{
			Type: delta.Deleted, Key: o.Key(), Object: o, Version: o.Version(),
		})
		o = copied[keys[5*i+1]]
		put(verify.DivergenceStale, o.Version(), edited(t, o, version(o.Version()-1-random.Uint64N(3))), false)
		o = copied[keys[5*i+2]]
		put(verify.DivergenceExtra, 0, edited(t, o, func(p *corev1.Pod) { p.Name += "-extra" }), false)
		o = copied[keys[5*i+3]]
		if i%2 == 0 {
			put(verify.DivergenceWrong, o.Version(), edited(t, o, func(p *corev1.Pod) { p.UID += "0" }), false)
		} else {
			put(verify.DivergenceWrong, o.Version(), edited(t, o, func(p *corev1.Pod) {
				p.Spec.Containers[0].Image += "0"
			}), true)
		}
		if o = copied[keys[5*i+4]]; ahead && o.Version() < now {
			put(verify.DivergenceAhead, o.Version(),
				edited(t, o, version(o.Version()+1+random.Uint64N(now-o.Version()))), false)
		}
	}
	m.Tamper(podResource, deltas...)
	return all
}

// wantFound checks that a result has exactly the injected divergences.
func wantFound(t *testing.T, v *fleet.Verification, injected []injection) {
	t.Helper()
	want, counts := map[string]verify.Divergence{}, map[verify.DivergenceKind]int{}
	for _, i := range injected {
		if v.Deep || !i.content {
			want[i.Key] = i.Divergence
			counts[i.Kind]++
		}
	}
	got := map[string]verify.Divergence{}
	for _, d := range v.Examples {
		got[d.Key] = d
	}
	if !maps.Equal(got, want) {
		for key := range got {
			if got[key] != want[key] {
				t.Errorf("found %v, injected %v", got[key], want[key])
			}
		}
		for key, d := range want {
			if _, ok := got[key]; !ok {
				t.Errorf("not found: %v", d)
			}
		}
	}
	expect.Equal(t, v.Counts, counts)
	if v.Undecided != 0 {
		t.Errorf("%d objects are undecided", v.Undecided)
	}
}

// wantSame checks that the copy has the pods of the cluster, byte for byte.
func wantSame(t *testing.T, c *simulated.Cluster, m *fleet.Member) {
	t.Helper()
	copied, _ := m.Copied(podResource)
	n := 0
	for i := range c.Pods() {
		pod := c.Pod(i)
		if pod == nil {
			continue
		}
		n++
		o := copied[pod.Namespace+"/"+pod.Name]
		if o == nil {
			t.Errorf("the copy has no %s/%s", pod.Namespace, pod.Name)
			continue
		}
		is, err := wire.DecodeFresh[*corev1.Pod](o)
		if err != nil {
			t.Fatal(err)
		}
		pod.TypeMeta = is.TypeMeta
		if !reflect.DeepEqual(is, pod) { // showing the difference is slow
			expect.Equal(t, is, pod)
		}
	}
	expect.Equal(t, len(copied), n)
}
