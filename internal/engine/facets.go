// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// facetsOf computes the facets of a life's objects, and counts them.
type facetsOf struct {
	// plan is [Hooks.Facets], and now what it returned when the run began.
	plan  func(context.Context) *facets.Plan
	now   atomic.Pointer[facets.Plan]
	store *store.Store[*wire.Object]
	// transformed means that objects may have lost fields before they are stored.
	transformed bool
	// bytes is the size of the records, unknown the number of objects without one or with unknown
	// facets.
	bytes, unknown atomic.Int64
	// mu is held while a batch is counted, and while a stored object gets other facets.
	mu sync.Mutex
}

// begin is called when the run begins.
func (f *facetsOf) begin(ctx context.Context) {
	if f.plan != nil {
		f.now.Store(f.plan(ctx))
	}
}

// around returns a transformation whose results have facets. It is called before the run begins.
func (f *facetsOf) around(transform Transform, drops bool) Transform {
	before := func(key string) *wire.Object {
		o, _ := f.store.Get(key)
		return o
	}
	var once sync.Once
	with := transform
	return func(o *wire.Object) (*wire.Object, error) {
		once.Do(func() {
			if p := f.now.Load(); p != nil {
				with = p.Around(transform, drops, before)
			}
		})
		if with == nil {
			return o, nil
		}
		return with(o)
	}
}

// attach computes the facets of objects that were loaded from files, on all CPUs. The files have the
// bytes of the objects, and no facets.
func (f *facetsOf) attach(objects []*wire.Object) {
	p := f.now.Load()
	if p == nil {
		return
	}
	var running sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		running.Go(func() {
			for _, o := range objects[len(objects)*w/workers : len(objects)*(w+1)/workers] {
				p.Restore(o, f.transformed)
			}
		})
	}
	running.Wait()
}

// apply counts the changes of a batch.
func (f *facetsOf) apply(changes []Change) {
	if f.now.Load() == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		if c.Type == delta.Sync {
			continue
		}
		if c.Type != delta.Deleted {
			f.count(c.New, 1)
		}
		if c.Old != nil {
			f.count(c.Old, -1)
		}
	}
}

// count adds an object, or removes it.
func (f *facetsOf) count(o *wire.Object, sign int64) {
	r := facets.Of(o)
	if r != nil {
		f.bytes.Add(sign * int64(r.Size()))
	}
	if r == nil || r.Partial() {
		f.unknown.Add(sign)
	}
}

// FacetStats returns the size of the facets, without the values that objects share, and the number
// of objects that have unknown ones.
func (l *Life) FacetStats() (bytes, unknown int64) {
	return l.facets.bytes.Load(), l.facets.unknown.Load()
}

// unified is [objectpack.Unify] for objects with facets: those of the arrived object become those of
// the stored one if they were unknown.
func (f *facetsOf) unified(stored, arrived *wire.Object) bool {
	if !objectpack.Unify(stored, arrived) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// An object that the store does not have any more is counted as it was stored.
	if now, _ := f.store.Get(stored.Key()); now == stored && stored != arrived {
		f.count(stored, -1)
		facets.Share(stored, arrived)
		f.count(stored, 1)
	}
	return true
}
