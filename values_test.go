// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"runtime"
	"runtime/debug"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/wiretest"
)

// readPods reads all pods of an informer, and returns how many there are.
func readPods(i *watershed.Informer[*corev1.Pod]) (n int) {
	for range i.All() {
		n++
	}
	return n
}

func TestValues_ofChangedObjectsAreDropped(t *testing.T) {
	s := newServer()
	workload(s, 100)
	i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	r := i.Handle(watershed.Handler[*corev1.Pod]{Add: func(*corev1.Pod, bool) {}})
	stop := running(t, i.Run)
	<-r.Synced()
	readPods(i)
	expect.Equal(t, i.Stats().Values.Kept, 0)
	readPods(i)
	v := i.Stats().Values
	expect.Equal(t, v.Kept, 100)
	if v.KeptBytes < 100<<10 || v.Decodes < 100 || v.Lifetime == 0 {
		t.Errorf("%+v", v)
	}
	n := 0
	for key := range s.state() {
		if n++; n <= 10 {
			s.put(key, func(p *corev1.Pod) { p.Labels["round"] = "2" })
		}
	}
	expect.Soon(t, "the values of changed objects to be dropped", func() bool { return i.Stats().Values.Kept == 90 })
	stop()
	v = i.Stats().Values
	expect.Equal(t, v.Kept, 0)
	expect.Equal(t, v.KeptBytes, 0)
}

// TestValues_onePassKeepsNothing reads every object once, in a program whose handler has read
// them before.
func TestValues_onePassKeepsNothing(t *testing.T) {
	s := newServer()
	pods := 6000
	if testing.Short() {
		pods = 3000
	}
	workload(s, pods)
	i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	before := wiretest.Heap()
	r := i.Handle(watershed.Handler[*corev1.Pod]{Add: func(*corev1.Pod, bool) {}})
	running(t, i.Run)
	<-r.Synced()
	watershed.Settle(i)
	heap := wiretest.Heap() - before
	expect.Equal(t, readPods(i), pods)
	if now := wiretest.Heap() - before; now > heap+heap/10 {
		t.Errorf("a pass over all objects raised the heap from %d to %d", heap, now)
	}
	expect.Equal(t, i.Stats().Values.Kept, 0)
}

// TestValues_withHalfOfTheirMemory reads everything again and again in a process that has half of
// the memory that the values take. It must not run beside other tests.
func TestValues_withHalfOfTheirMemory(t *testing.T) {
	s := newServer()
	pods := 3000
	workload(s, pods)
	i := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	running(t, i.Run)
	expect.Equal(t, i.WaitForSync(t.Context()), nil)
	readPods(i)
	readPods(i)
	all := i.Stats().Values
	expect.Equal(t, all.Kept, int64(pods))
	limit := int64(wiretest.Heap()) - all.KeptBytes/2
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	expect.Soon(t, "the values to shrink", func() bool {
		expect.Equal(t, readPods(i), pods)
		runtime.GC()
		return i.Stats().Values.KeptBytes <= limit/4 && int64(wiretest.Heap()) < limit
	})
}
