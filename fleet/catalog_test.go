// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/wire"
)

// microseconds returns the time as used in revisions.
func microseconds() uint64 { return uint64(time.Now().UnixMicro()) }

// joinResource makes a resource one that a cluster has, with one object, and returns a function
// that ends its mirror.
func (w *world) joinResource(r schema.GroupResource) (end func()) {
	of := *w
	of.c = w.fleet.catalog.Collection(r)
	of.mirrors, of.end, of.truth = map[string]*part{}, map[string]func(){}, map[Key]uint64{}
	of.join("eu", "a")
	return func() { of.leave("eu") }
}

// TestCatalog_freesResourcesThatComeAndGo rotates the types of a cluster 10,000 times, half
// of them with a reader.
func TestCatalog_freesResourcesThatComeAndGo(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	heap := func() int64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for n := range 10_000 {
		r := schema.GroupResource{Group: "example.com", Resource: fmt.Sprint("types", n)}
		end := w.joinResource(r)
		if n%2 == 0 {
			_, f := OfResource[*wire.Object](w.fleet, r).Follow()
			end()
			drain(t, f)
		} else {
			end()
		}
	}
	expect.Eventually(t, 10*time.Second, func() error {
		runtime.GC()
		if n := w.fleet.catalog.Len(); n > 10 {
			return fmt.Errorf("the catalog has %d resources", n)
		}
		return nil
	})
	grown := heap() - before
	t.Logf("the heap grew by %d KB", grown>>10)
	if grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// TestCatalog_readersKeepTheirResource has a resource disappear and come back, while a
// view, a follower and an index of it exist.
func TestCatalog_readersKeepTheirResource(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	r := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	early := OfResource[*wire.Object](w.fleet, r) // before any cluster has it
	index := IndexBy(OfResource[*wire.Object](w.fleet, r), func(o *wire.Object) []string { return []string{o.Name()} })
	_, follower := OfResource[*wire.Object](w.fleet, r).Follow()
	next := func(want ...delta.Type) {
		t.Helper()
		var got []delta.Type
		changes, err := follower.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		if changes != nil {
			for c := range changes {
				got = append(got, c.Type)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("received %v, want %v", got, want)
		}
	}
	found := func(want int) {
		t.Helper()
		indexed := 0
		for range index.Get("a") {
			indexed++
		}
		if early.Len() != want || indexed != want {
			t.Errorf("%d objects, %d in the index, want %d", early.Len(), indexed, want)
		}
	}
	for range 3 {
		end := w.joinResource(r)
		for range 3 {
			runtime.GC()
		}
		next(delta.Added)
		found(1)
		end()
		for range 3 {
			runtime.GC()
		}
		next(delta.Deleted)
		found(0)
	}
	runtime.KeepAlive(early)
}

// TestCatalog_revisionsDoNotRepeat frees collections whose revisions are ahead of the
// clock, and makes them again, before and after the catalog has removed their entries.
func TestCatalog_revisionsDoNotRepeat(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	last, reserved := map[string]uint64{}, map[string]uint64{}
	for n := range 40 {
		name := fmt.Sprint("widgets", n%2)
		view := OfResource[*wire.Object](w.fleet, schema.GroupResource{Resource: name})
		if last[name] != 0 {
			if first := view.Snapshot().Revision(); first <= last[name] || first <= reserved[name] {
				t.Fatalf("revision %d after %d and %d", first, last[name], reserved[name])
			}
			if _, err := view.FollowAfter(last[name], false); !errors.Is(err, fanout.ErrExpired) {
				t.Errorf("after a revision of a collection that was freed: %v", err)
			}
			if _, err := view.FollowAfter(reserved[name], true); !errors.Is(err, fanout.ErrExpired) {
				t.Errorf("after a reserved revision of a collection that was freed: %v", err)
			}
		}
		// A client comes from a replica whose clock is ahead.
		if err := view.Recognize((microseconds()+30e6)<<collection.SlotBits |
			(w.slot+1)%(1<<collection.SlotBits)); !errors.Is(err, fanout.ErrExpired) {
			t.Fatal(err)
		}
		last[name], reserved[name] = view.Snapshot().Revision(), view.Reserve()
		if last[name]>>collection.SlotBits < microseconds()+1e6 {
			t.Fatal("the revision is not ahead of the clock")
		}
		old := weak.Make(view.collection)
		for old.Value() != nil {
			runtime.GC()
		}
	}
}

// TestCatalog_closed checks that a watch of a resource that nothing used when the run
// ended does not wait for changes.
func TestCatalog_closed(t *testing.T) {
	w := newWorld(t, 1<<20)
	defer w.close()
	w.fleet.catalog.Close()
	for range OfResource[*wire.Object](w.fleet, schema.GroupResource{Resource: "widgets"}).Watch(t.Context()) {
		t.Error("a change after the end")
	}
}
