// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache_test

import (
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// slowPods returns a sharer of values that take a while to decode, and which has no ring. The
// fake clock of a test makes its T exact.
func slowPods(opts valuecache.Options) *valuecache.Sharer[*corev1.Pod] {
	if opts.BytesPerCPU == 0 {
		opts.BytesPerCPU = valuecache.DefaultBytesPerCPU
	}
	slow := func(o *wire.Object) (*corev1.Pod, error) {
		time.Sleep(100 * time.Microsecond)
		return wire.DecodeFresh[*corev1.Pod](o)
	}
	return &valuecache.Sharer[*corev1.Pod]{Cache: valuecache.New(opts), Make: slow}
}

// pods returns n objects.
func pods(t *testing.T, n int) []*wire.Object {
	out := make([]*wire.Object, n)
	for i := range out {
		out[i] = wiretest.PodObject(t, wire.Protobuf, i)
	}
	return out
}

// has frees what nothing holds, and reports whether the sharer has a value of the object.
func has(s *valuecache.Sharer[*corev1.Pod], o *wire.Object) bool {
	runtime.GC()
	runtime.GC()
	_, ok := s.Held(o)
	return ok
}

func readAll(t *testing.T, s *valuecache.Sharer[*corev1.Pod], objects []*wire.Object) {
	t.Helper()
	for _, o := range objects {
		_, err := s.Read(o)
		wiretest.Must(t, err)
	}
}

// TestCache_keepsWhatIsReadAgain follows values from their first read to the end of their time.
func TestCache_keepsWhatIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, objects := slowPods(valuecache.Options{}), pods(t, 20)
		defer s.Cache.Suspend()
		readAll(t, s, objects)
		T := s.Cache.Stats().Lifetime
		if T < 5*time.Second || T > time.Minute {
			t.Fatalf("T is %v", T)
		}
		if got := s.Cache.Stats(); got.Kept != 0 || has(s, objects[0]) {
			t.Fatalf("after one pass: %+v", got)
		}
		time.Sleep(T + time.Second)
		readAll(t, s, objects)
		if got := s.Cache.Stats(); got.Kept != 0 || has(s, objects[0]) {
			t.Fatalf("after a second pass later than T: %+v", got)
		}
		time.Sleep(T - time.Second)
		readAll(t, s, objects)
		if got := s.Cache.Stats(); got.Kept != 20 || got.KeptBytes < 20<<10 || !has(s, objects[0]) {
			t.Fatalf("after a third pass sooner than T: %+v", got)
		}
		for range 5 { // read again in time: one of them
			time.Sleep(T - time.Second)
			readAll(t, s, objects[:1])
		}
		got := s.Cache.Stats()
		if got.Kept != 1 || has(s, objects[1]) || !has(s, objects[0]) {
			t.Errorf("when all but one were not read: %+v", got)
		}
		if got.Decodes != 60 {
			t.Errorf("%d decodes, want 60", got.Decodes)
		}
		for range 1000 {
			readAll(t, s, objects[:1])
		}
		if got := s.Cache.Stats().Hits; got < 500 || got > 2000 {
			t.Errorf("about %d hits, want 1005", got)
		}
		time.Sleep(2 * T)
		if got := s.Cache.Stats(); got.Kept != 0 || got.KeptBytes != 0 || has(s, objects[0]) {
			t.Errorf("when none was read: %+v", got)
		}
	})
}

// TestCache_functionsOfTheProgramEarnNothing decodes as handlers and indexes do.
func TestCache_functionsOfTheProgramEarnNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, objects := slowPods(valuecache.Options{Recent: 1 << 20}), pods(t, 20)
		for range 3 {
			for _, o := range objects {
				_, err := s.Decode(o)
				wiretest.Must(t, err)
			}
		}
		readAll(t, s, objects)
		if got := s.Cache.Stats(); got.Kept != 0 || got.Decodes != 20 {
			t.Errorf("%+v, want 20 decodes and nothing kept", got)
		}
	})
}

func TestCache_keepsWithinItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, objects := slowPods(valuecache.Options{Max: 100 << 10}), pods(t, 40)
		defer s.Cache.Suspend()
		for range 3 {
			readAll(t, s, objects)
		}
		got := s.Cache.Stats()
		if got.KeptBytes > 100<<10 || got.KeptBytes < 60<<10 {
			t.Errorf("%d bytes are kept, want at most %d", got.KeptBytes, 100<<10)
		}
	})
}

// TestCache_suspended checks that nothing is kept by a suspended cache, and no timer left: the
// bubble would not end with it.
func TestCache_suspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, objects := slowPods(valuecache.Options{Recent: 1 << 20}), pods(t, 20)
		twice := func() valuecache.Stats {
			readAll(t, s, objects)
			readAll(t, s, objects)
			return s.Cache.Stats()
		}
		wiretest.WantEqual(t, "kept before", twice().Kept, 20)
		s.Cache.Suspend()
		if got := s.Cache.Stats(); got.Kept+got.KeptBytes+got.RecentBytes != 0 || has(s, objects[0]) {
			t.Errorf("kept after the suspension: %+v", got)
		}
		if got := twice(); got.Kept+got.RecentBytes != 0 {
			t.Errorf("kept while suspended: %+v", got)
		}
		s.Cache.Resume()
		wiretest.WantEqual(t, "kept after", twice().Kept, 20)
		s.Cache.Suspend()
	})
}

// TestCache_dropsValuesOfChangedObjects drops the values of an object as the engine does.
func TestCache_dropsValuesOfChangedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, objects := slowPods(valuecache.Options{}), pods(t, 2)
		defer s.Cache.Suspend()
		readAll(t, s, objects)
		readAll(t, s, objects)
		objects[0].Views().Drop()
		if got := s.Cache.Stats(); got.Kept != 1 || has(s, objects[0]) || !has(s, objects[1]) {
			t.Errorf("%+v, want only the value of the other object", got)
		}
	})
}

// TestCache_shrinksWhenMemoryIsScarce sets a limit below what the process needs. It must not run
// beside other tests.
func TestCache_shrinksWhenMemoryIsScarce(t *testing.T) {
	s := &valuecache.Sharer[*corev1.Pod]{Cache: valuecache.New(valuecache.Options{
		BytesPerCPU: 1 << 36, // T is a minute or more
	}), Make: wire.DecodeFresh[*corev1.Pod]}
	defer s.Cache.Suspend()
	objects := pods(t, 200)
	readAll(t, s, objects)
	readAll(t, s, objects)
	T := s.Cache.Stats().Lifetime
	if got := s.Cache.Stats(); got.Kept != 200 || T < 10*time.Second {
		t.Fatalf("before: %+v", got)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 20))
	wiretest.Until(t, func() bool {
		readAll(t, s, objects[:1]) // its reads go on
		runtime.GC()
		return s.Cache.Stats().Kept <= 1
	})
	if got := s.Cache.Stats().Lifetime; got > T/8 {
		t.Errorf("T is %v, and was %v", got, T)
	}
}

// TestCache_readersAndSweeps reads, sweeps, drops and suspends at the same time.
func TestCache_readersAndSweeps(t *testing.T) {
	s := &valuecache.Sharer[*corev1.Pod]{Cache: valuecache.New(valuecache.Options{
		Recent: 64 << 10, BytesPerCPU: 1, // T is as short as it can be
	}), Make: wire.DecodeFresh[*corev1.Pod]}
	objects := pods(t, 50)
	var readers sync.WaitGroup
	for r := range 8 {
		readers.Go(func() {
			for n := range 2000 {
				o := objects[(n*7+r)%len(objects)]
				if p, err := s.Read(o); err != nil || p.Name != o.Name() {
					t.Errorf("%v, %v", p, err)
					return
				}
				switch {
				case r == 0 && n%10 == 0:
					o.Views().Drop()
				case r == 1 && n%100 == 0:
					s.Cache.Sweep()
				case r == 2 && n%500 == 0:
					s.Cache.Suspend()
					s.Cache.Resume()
				}
			}
		})
	}
	readers.Wait()
	s.Cache.Suspend()
	if got := s.Cache.Stats(); got.Kept != 0 || got.KeptBytes != 0 {
		t.Errorf("%+v, want nothing kept", got)
	}
	wiretest.WantEqual(t, "bytes of all caches", valuecache.Kept(), 0)
}
