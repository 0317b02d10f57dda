// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// onNode encodes a pod of a node.
func onNode(t testing.TB, name, node string, version uint64) *wire.Object {
	t.Helper()
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	o, err := wire.Encode(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "n",
			Name:            name,
			ResourceVersion: strconv.FormatUint(version, 10),
			Labels:          map[string]string{"node": node},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}, wire.Protobuf, kind)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// nodeAgent follows the pods of one node in all clusters.
type nodeAgent struct {
	t        *testing.T
	node     string
	follower *Follower[*wire.Object]
	known    map[Key]uint64
	// read is how many changes the agent received, and matched how many are of its node.
	read, matched int
}

func newNodeAgent(t *testing.T, v *View[*wire.Object], node string) *nodeAgent {
	a := &nodeAgent{t: t, node: node, known: map[Key]uint64{}}
	var now Snapshot[*wire.Object]
	now, a.follower = v.Follow()
	for key, o := range now.All() {
		if a.has(o) {
			a.known[key] = o.Version()
		}
	}
	return a
}

func (a *nodeAgent) has(o *wire.Object) bool {
	if o == nil {
		return false
	}
	node, _ := o.Label("node")
	return node == a.node
}

func (a *nodeAgent) learn(changes iter.Seq[Change[*wire.Object]]) {
	for c := range changes {
		a.read++
		old, now := c.Raw()
		was, is := c.Type != delta.Added && a.has(old), c.Type != delta.Deleted && a.has(now)
		if was || is {
			a.matched++
		}
		if _, known := a.known[c.Key]; known != was {
			a.t.Errorf("agent of %q: %s of %v, known %t, was there %t", a.node, c.Type, c.Key, known, was)
		}
		delete(a.known, c.Key)
		if is {
			a.known[c.Key] = now.Version()
		}
	}
}

// catchUp reads all changes, waiting or not.
func (a *nodeAgent) catchUp(wait bool) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		var changes iter.Seq[Change[*wire.Object]]
		var err error
		if wait {
			changes, err = a.follower.Next(done)
		} else {
			changes, err = a.follower.TryNext()
		}
		if errors.Is(err, context.Canceled) || err == nil && changes == nil {
			return
		}
		if err != nil {
			a.t.Fatal(err)
		}
		a.learn(changes)
	}
}

// TestConcerning_missesNothing has agents of nodes follow clusters in which pods move
// between nodes, while clusters come, go and are replaced. Each agent ends up with the
// pods of its node, whatever its interest is.
func TestConcerning_missesNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	read, matched := 0, 0
	for run := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, run))
		w := newWorld(t, []int64{1 << 20, 1 << 20, 3000}[rng.IntN(3)])
		w.c.Keep = []int{1, 5, 40, 1000}[rng.IntN(4)]
		nodes, clusters := []string{"", "a", "b", "c"}, []string{"eu", "us"}
		truth := map[Key]*wire.Object{}
		view := OfResource[*wire.Object](w.fleet, w.c.Resource())
		var agents []*nodeAgent
		for range 300 {
			cluster := clusters[rng.IntN(len(clusters))]
			switch n := rng.IntN(100); {
			case w.mirrors[cluster] == nil || n < 2:
				w.join(cluster)
				maps.DeleteFunc(truth, func(k Key, _ *wire.Object) bool { return k.Cluster == cluster })
			case n < 4:
				w.leave(cluster)
				maps.DeleteFunc(truth, func(k Key, _ *wire.Object) bool { return k.Cluster == cluster })
			case n < 10 && len(agents) < 6:
				node := nodes[rng.IntN(len(nodes))]
				interest := []fanout.Interest{
					objectlog.HasField("spec.nodeName", node), fanout.In(objectlog.ByLabel, "node="+node),
				}[rng.IntN(2)]
				agents = append(agents, newNodeAgent(t, view.Concerning(interest), node))
			case n < 30 && len(agents) > 0:
				agents[rng.IntN(len(agents))].catchUp(rng.IntN(2) == 0)
			default:
				w.version++
				o := onNode(t, fmt.Sprint("p", rng.IntN(5)), nodes[rng.IntN(len(nodes))], w.version)
				key := Key{cluster, o.Key()}
				d := delta.Delta[*wire.Object]{Type: delta.Updated, Key: o.Key(), Object: o, Version: o.Version()}
				if n < 85 {
					truth[key] = o
					w.mirrors[cluster].informer.Write(d)
				} else if last := truth[key]; last != nil {
					d.Type, d.Object = delta.Deleted, last
					delete(truth, key)
					w.mirrors[cluster].informer.Write(d)
				}
			}
		}
		for _, a := range agents {
			a.catchUp(true)
			want := map[Key]uint64{}
			for key, o := range truth {
				if a.has(o) {
					want[key] = o.Version()
				}
			}
			if !maps.Equal(a.known, want) {
				t.Errorf("agent of %q knows %v, there is %v", a.node, a.known, want)
			}
			read, matched = read+a.read, matched+a.matched
		}
		w.close()
		if t.Failed() {
			t.Fatalf("in run %d of seed %d", run, seed)
		}
	}
	t.Logf("agents read %d changes, of which %d concerned them", read, matched)
	if matched < 300 {
		t.Error("hardly a test")
	}
}

// TestFollower_keepsNoMoreOfThePastWhenNothingConcernsIt has a follower wait during
// changes that do not concern it: its base is renewed.
func TestFollower_keepsNoMoreOfThePastWhenNothingConcernsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1<<20)
		defer w.close()
		w.c.Keep = 4
		w.join("eu")
		for _, v := range []*View[*wire.Object]{
			OfResource[*wire.Object](w.fleet, w.c.Resource()).Concerning(objectlog.HasField("spec.nodeName", "a")),
			OfResource[*wire.Object](w.fleet, w.c.Resource()).In("us"),
		} {
			_, f := v.Follow()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := f.Next(ctx)
				done <- err
			}()
			const changes = 40
			var revisions []uint64 // after each change
			for range changes {
				synctest.Wait()
				w.version++
				o := onNode(t, "p", "b", w.version)
				w.mirrors["eu"].informer.Write(delta.Delta[*wire.Object]{
					Type: delta.Updated, Key: o.Key(), Object: o, Version: w.version,
				})
				revisions = append(revisions, w.c.Newest(nil).Revision())
			}
			synctest.Wait()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			seen, _ := slices.BinarySearch(revisions, f.inner.Base().Revision()+1)
			if behind := changes - seen; behind > 2*w.c.Keep {
				t.Errorf("after %d changes the base is %d behind, want at most %d", changes, behind, 2*w.c.Keep)
			}
		}
	})
}
