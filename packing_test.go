// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// workload adds n realistic pods to a server.
func workload(s *server, n int) {
	w := kubetest.Workload{Seed: 1}
	for i := range n {
		pod := w.Pod(i)
		s.put(pod.Namespace+"/"+pod.Name, func(p *corev1.Pod) {
			*p = *pod
		})
	}
}

// check compares an informer with its server, with every way of reading.
func check(t *testing.T, s *server, i *watershed.Informer[*corev1.Pod], byNode *watershed.Index[*corev1.Pod, string]) {
	t.Helper()
	n, snap := 0, i.Snapshot()
	for key, pod := range snap.All() {
		n++
		want := s.pods[key].DeepCopy()
		want.SetGroupVersionKind(podKind.GroupVersionKind)
		if !equality.Semantic.DeepEqual(pod, want) {
			t.Fatalf("%s is another", key)
		}
		if o, _ := snap.Get(key); o.ResourceVersion != want.ResourceVersion {
			t.Fatalf("%s is at %s, want %s", key, o.ResourceVersion, want.ResourceVersion)
		}
	}
	expect.Equal(t, n, len(s.pods))
	matching, on := 0, 0
	selector, err := labels.Parse("team in (team-001,team-002),app.kubernetes.io/component!=api")
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range s.pods {
		if selector.Matches(labels.Set(pod.Labels)) {
			matching++
		}
		if pod.Spec.NodeName == "node-7" {
			on++
		}
	}
	for range snap.Select("", selector) {
		matching--
	}
	for range byNode.Get("node-7") {
		on--
	}
	expect.Equal(t, matching, 0)
	expect.Equal(t, on, 0)
}

func TestPacked_readsAsFast(t *testing.T) {
	s := newServer()
	pods := 2000
	if testing.Short() {
		pods = 800
	}
	workload(s, pods)
	i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Memory: watershed.Packed})
	byNode := watershed.IndexBy(i, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
	var calls int
	r := i.Handle(watershed.Handler[*corev1.Pod]{
		Add: func(*corev1.Pod, bool) { calls++ },
		Update: func(old, now *corev1.Pod) {
			if old.Labels["round"] == now.Labels["round"] || old.Name != now.Name {
				t.Errorf("%s went from %q to %q", now.Name, old.Labels["round"], now.Labels["round"])
			}
			calls++
		},
	})
	stop := running(t, i.Run)
	<-r.Synced()
	check(t, s, i, byNode)
	if stats := i.Stats(); stats.Packed < pods-300 {
		t.Errorf("%d of %d objects are packed", stats.Packed, stats.Objects)
	}
	watershed.Settle(i)
	check(t, s, i, byNode)

	// A second round changes objects that are packed densely.
	for key := range s.state() {
		if strings.HasPrefix(key, "team-00") {
			s.put(key, func(p *corev1.Pod) { p.Labels["round"] = "2" })
		}
	}
	version := s.version
	for i.Snapshot().Version() < version {
		runtime.Gosched()
	}
	check(t, s, i, byNode)
	watershed.Settle(i)
	check(t, s, i, byNode)
	stop()
	expect.Equal(t, calls > pods, true)
	if left := i.Stats().Bytes(); left > 10_000 {
		t.Errorf("%d bytes are left after the end: %+v", left, i.Stats())
	}
}

// TestPacking_isShared has informers of the same kind use one dictionary, and take
// turns at packing densely.
func TestPacking_isShared(t *testing.T) {
	shared := watershed.NewPacking(&watershed.PackingOptions{Settling: 1})
	s := newServer()
	workload(s, 500)
	var all []*watershed.Informer[*corev1.Pod]
	for range 4 {
		i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Memory: watershed.Packed, Packing: shared})
		running(t, i.Run)
		<-i.Synced()
		all = append(all, i)
	}
	var fast, dense int64
	for _, i := range all {
		fast += i.Stats().ObjectBytes
	}
	var wg sync.WaitGroup
	for _, i := range all {
		wg.Go(func() { watershed.Settle(i) })
	}
	wg.Wait()
	var dictionaries int64
	for _, i := range all {
		stats := i.Stats()
		dense += stats.ObjectBytes
		dictionaries += stats.DictionaryBytes
		expect.Equal(t, stats.Packed, 500)
	}
	if dense > fast*3/4 {
		t.Errorf("settled objects take %d bytes, %d before", dense, fast)
	}
	alone := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Memory: watershed.Packed})
	running(t, alone.Run)
	<-alone.Synced()
	if one := alone.Stats().DictionaryBytes; dictionaries > 2*one {
		t.Errorf("four informers that share report dictionaries of %d bytes, one alone %d", dictionaries, one)
	}
}

// TestPacking_dictionaries checks the limit on dictionaries, and that those of a kind are
// freed with the last informer of the kind.
func TestPacking_dictionaries(t *testing.T) {
	s := newServer()
	workload(s, 500)
	for _, limit := range []int64{0, 64 << 10} {
		shared := watershed.NewPacking(&watershed.PackingOptions{Settling: 1, Dictionaries: limit})
		var stops []func()
		for range 2 {
			i := watershed.FromSource(s,
				&watershed.SourceOptions[*corev1.Pod]{Memory: watershed.Packed, Packing: shared})
			stops = append(stops, running(t, i.Run))
			<-i.Synced()
			watershed.Settle(i)
			if packed := i.Stats().Packed; (packed > 0) != (limit == 0) {
				t.Errorf("with a limit of %d, %d objects are packed", limit, packed)
			}
		}
		left := func() int {
			for range 3 {
				runtime.GC()
			}
			return int(shared.DictionaryBytes())
		}
		if bytes := left(); bytes == 0 || limit > 0 && bytes > int(limit) {
			t.Errorf("with a limit of %d, dictionaries and samples take %d bytes", limit, bytes)
		}
		stops[0]()
		expect.Equal(t, left() > 0, true)
		stops[1]()
		stops = nil
		expect.Eventually(t, 5*time.Second, func() error {
			if bytes := left(); bytes > 0 {
				return fmt.Errorf("dictionaries and samples take %d bytes", bytes)
			}
			return nil
		})
	}
}

// TestPacking_afterARestore restores the server from a backup. The versions of the restored objects
// are lower than the versions that are packed densely already, and the objects become as dense.
func TestPacking_afterARestore(t *testing.T) {
	fill := func(s *server, from uint64, text string) {
		s.version = from
		for n := range 2000 {
			s.put(fmt.Sprintf("shop/pod-%05d", n), func(p *corev1.Pod) {
				p.UID = types.UID(strconv.Itoa(n))
				p.Annotations = map[string]string{
					"text": strings.Repeat("some text that repeats ", 10) + text + strconv.Itoa(n*7919),
				}
				p.Spec.Containers = []corev1.Container{
					{Name: "web", Image: "registry.example.com/team/image:" + strconv.Itoa(n)},
				}
			})
		}
	}
	settled := func(restored bool) (bytes int64) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			fill(s, 1000, "x")
			if restored {
				fill(s, 1_000_000, "y")
			}
			pods := watershed.FromSource(s,
				&watershed.SourceOptions[*corev1.Pod]{Memory: watershed.Packed, Reflector: patient})
			stop := running(t, pods.Run)
			<-pods.Synced()
			watershed.Settle(pods)
			if restored {
				clear(s.streams) // the watch does not see the writes
				fill(s, 1000, "x")
				pods.Engine().Current().Reflector().RelistBack()
				synctest.Wait()
				expect.Equal(t, pods.Status().Reflector.Restores, 1)
				watershed.Settle(pods)
			}
			bytes = pods.Stats().ObjectBytes
			stop()
		})
		return bytes
	}
	want, got := settled(false), settled(true)
	if float64(got) > 1.05*float64(want) {
		t.Errorf("the objects take %d bytes after a restore, and %d without one", got, want)
	}
}

// TestInformer_thatNeverRunsIsFreed: nothing that it has started keeps it in memory.
func TestInformer_thatNeverRunsIsFreed(t *testing.T) {
	written := func() weak.Pointer[corev1.Pod] {
		mark := new(corev1.Pod) // the informer alone refers to it
		i := watershed.FromSource(newServer(),
			&watershed.SourceOptions[*corev1.Pod]{Memory: watershed.Packed,
				Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
					p.Name = mark.Name
					return p, nil
				}})
		own := podAt(t, "own", 5)
		i.Write(delta.Delta[*wire.Object]{Type: delta.Added, Key: own.Key(), Object: own, Version: 5})
		return weak.Make(mark)
	}()
	expect.Soon(t, "free", func() bool {
		runtime.GC()
		return written.Value() == nil
	})
}

// TestTap_isToldEverythingInOrder rebuilds the state from the calls of the tap.
func TestTap_isToldEverythingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a/1", nil)
		s.put("a/2", nil)
		var calls, revision int
		state := map[string]uint64{}
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
			Tap: func(now watershed.Snapshot[*corev1.Pod], changes []store.Change[*wire.Object], _ bool) {
				calls++
				if calls == 1 {
					expect.Equal(t, len(changes), 0)
					expect.Equal(t, now.Len(), 2)
					for key, o := range now.Raw() {
						state[key] = o.Version()
					}
				}
				for _, c := range changes {
					if int(c.Revision) <= revision {
						t.Errorf("revision %d after %d", c.Revision, revision)
					}
					revision = int(c.Revision)
					state[c.Key] = c.New.Version()
					if c.Type == delta.Deleted {
						delete(state, c.Key)
					}
				}
				for key, o := range now.Raw() {
					expect.Equal(t, state[key], o.Version())
				}
				expect.Equal(t, len(state), now.Len())
			},
		})
		stop := running(t, pods.Run)
		<-pods.Synced()
		s.put("a/3", nil)
		s.put("a/1", nil)
		s.delete("a/2")
		synctest.Wait()
		expect.Equal(t, len(state), 2)
		expect.Equal(t, calls > 1, true)
		stop()
	})
}

// TestStats_matchTheHeap compares the report with the heap.
func TestStats_matchTheHeap(t *testing.T) {
	const n = 3000
	s := newServer()
	workload(s, n)
	for _, memory := range []watershed.Memory{watershed.Fast, watershed.Packed} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			before := restingHeap()
			var eager *watershed.Packing
			if memory == watershed.Packed {
				eager = watershed.NewPacking(&watershed.PackingOptions{Settling: 1})
			}
			i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Memory: memory, Packing: eager})
			watershed.IndexBy(i, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
			stop := running(t, i.Run)
			defer stop()
			synced(t, i, 2*time.Minute) // slow with the race detector
			if memory == watershed.Packed {
				watershed.Settle(i)
			}
			s.forget()
			stats := i.Stats()
			grown := restingHeap() - before
			t.Logf("heap %d, report %d bytes per object: %+v", grown/n, stats.Bytes()/n, stats)
			// The size of decoded values is an estimate of an estimate.
			if stats.Bytes() < grown*75/100 || stats.Bytes() > grown*125/100 {
				t.Errorf("the heap grew by %d, the report says %d: %+v", grown, stats.Bytes(), stats)
			}
		})
	}
}

// forget drops the events that the server has sent. They are not the informer's memory.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		w.mu.Lock()
		w.events = nil
		w.mu.Unlock()
	}
}

// restingHeap returns the live heap once the garbage of earlier tests has been freed.
func restingHeap() int64 {
	for last := liveHeap(); ; {
		time.Sleep(20 * time.Millisecond) // goroutines of earlier tests end between two measurements
		now := liveHeap()
		if now > last-100_000 {
			return now
		}
		last = now
	}
}

func TestDrop_removesFromTheBytes(t *testing.T) {
	for _, encoding := range []wire.Encoding{wire.JSON, wire.Protobuf} {
		s := newServer()
		s.encoding = encoding
		workload(s, 10)
		s.put("a/applied", func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "b": "c"}
		})
		i := watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{
			Drop: wire.ManagedFields | wire.LastApplied,
			TransformBytes: func(o *wire.Object) (*wire.Object, error) {
				if strings.Contains(string(o.Bytes()), "managedFields") {
					return nil, fmt.Errorf("%s has managed fields", o)
				}
				return o, nil
			},
		})
		stop := running(t, i.Run)
		synced(t, i, 30*time.Second)
		expect.Equal(t, i.Len(), 11)
		for key, o := range i.All() {
			pod, err := wire.Decode[*corev1.Pod](o)
			if err != nil || len(pod.ManagedFields) > 0 {
				t.Errorf("%s: %v, %d managed fields", key, err, len(pod.ManagedFields))
			}
		}
		o, _ := i.Get("a/applied")
		pod, _ := wire.Decode[*corev1.Pod](o)
		expect.Equal(t, pod.Annotations, map[string]string{"b": "c"})
		stop()
	}
}
