// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package valuecache_test

import (
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// held reports whether a decoded pod is alive.
func held(o *wire.Object) bool {
	_, ok := wire.Held[*corev1.Pod](o)
	return ok
}

func TestRecent_keepsWithinItsBound(t *testing.T) {
	cache := valuecache.New(valuecache.Options{Recent: 1 << 20})
	var objects []*wire.Object
	for i := range 500 {
		o := wiretest.PodObject(t, wire.Protobuf, i)
		_, err := valuecache.Decode[*corev1.Pod](o, cache, true)
		wiretest.Must(t, err)
		objects = append(objects, o)
	}
	if bytes := cache.Stats().RecentBytes; bytes > 1<<20 || bytes < 1<<19 {
		t.Errorf("%d bytes are kept", bytes)
	}
	runtime.GC()
	runtime.GC()
	last, first := objects[len(objects)-1], objects[0]
	if !held(last) {
		t.Error("the value decoded last is gone")
	}
	if held(first) {
		t.Error("the value decoded first is still there")
	}
	cache.Suspend()
	wiretest.Until(t, func() bool {
		runtime.GC()
		return !held(last)
	})
}

func TestSharer_sharesWhatIsRecent(t *testing.T) {
	made := 0
	cache := valuecache.New(valuecache.Options{Recent: 1 << 20})
	s := &valuecache.Sharer[string]{Cache: cache, Make: func(o *wire.Object) (string, error) {
		made++
		return o.Name() + "!", nil
	}}
	o := wiretest.PodObject(t, wire.Protobuf, 1)
	for range 3 {
		got, err := s.Read(o)
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "value", got, o.Name()+"!")
		runtime.GC()
	}
	wiretest.WantEqual(t, "values made", made, 1)
}
