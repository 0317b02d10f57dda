// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet/internal/mirror"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// newFeedMirror adds a mirror with a feed to the member eu of a fleet, and returns its informer,
// which the test writes to.
func newFeedMirror(t *testing.T, f *Fleet) *watershed.Informer[*wire.Object] {
	m := f.members["eu"]
	if m == nil {
		m = f.newMember("eu")
		m.end = func() {}
		f.members["eu"] = m
	}
	r := kube.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource(fmt.Sprint("pods", len(m.mirrors.Statuses()))),
	}
	x := &mirror.Mirror{Cluster: "eu", Resource: r, Source: &upstream.Source{}, End: func() {}}
	x.Informer = watershed.FromSource(empty{}, &watershed.SourceOptions[*wire.Object]{
		Window:    1,
		Logger:    slog.New(slog.DiscardHandler),
		Reflector: reflector.Options{ListOnly: true},
		Tap: func(s watershed.Snapshot[*wire.Object], changes []store.Change[*wire.Object], whole bool) {
			x.Feed.Apply(s, changes, whole)
		},
	})
	x.Feed = history.NewWriter(&x.Resource, x.Informer.Connection, f.settings.Window)
	m.mirrors.Add(x, false)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = x.Informer.Run(ctx) // returns when ctx ends
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	if err := x.Informer.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	return x.Informer
}

func newHistoricFleet(t *testing.T, opts Options) *Fleet {
	t.Helper()
	if opts.History == 0 {
		opts.History = 1 << 30
	}
	f, err := New(noDirectory{}, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFeed_ends has a resource served in another version, a resource that is removed, and
// a member that leaves: readers receive the remaining changes, and then an error.
func TestFeed_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newHistoricFleet(t, Options{})
		for range 3 {
			i := newFeedMirror(t, fleet)
			i.Write(delta.Delta[*wire.Object]{
				Type: delta.Updated, Key: "n/p", Object: onNode(t, "p", "", 5), Version: 5,
			})
		}
		m := fleet.members["eu"]
		at := func(n int) schema.GroupResource { return schema.GroupResource{Resource: fmt.Sprint("pods", n)} }
		listed := []kube.Resource{m.mirrors.Mirror(at(1)).Resource, m.mirrors.Mirror(at(0)).Resource}
		m.mirrors.SetListed(listed)
		if served := m.Served(); len(served) != 2 || served[0].Resource != "pods1" {
			t.Errorf("served are %v", served)
		}
		// Subresources may change while objects are mirrored: the change is reported, and
		// does not restart the mirror.
		listed[0].Subresources = []kube.Subresource{{Name: "status"}}
		if served := m.Served(); len(served[0].Subresources) != 1 ||
			!m.mirrors.Mirror(at(1)).Same(served[0], false, false) {
			t.Errorf("with a subresource, served are %v", served)
		}
		listed = append(listed, kube.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: "g", Version: "v2", Resource: "other"},
		})
		m.mirrors.SetListed(listed)
		if versions := m.Versions(); len(versions) != 2 || versions[1].String() != "g/v2" {
			t.Errorf("versions are %v", versions)
		}
		reader := func(n int) chan error {
			f, ok := m.Feed(at(n))
			if !ok {
				t.Fatalf("%v has no feed", at(n))
			}
			c := must(f.Cursor(0, fanout.Everything()))
			errs := make(chan error, 1)
			go func() {
				for {
					if _, err := c.Next(t.Context()); err != nil {
						errs <- fmt.Errorf("at revision %d: %w", c.Position(), err)
						return
					}
				}
			}()
			synctest.Wait()
			return errs
		}
		over := func(errs chan error) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-errs:
				if !errors.Is(err, fanout.ErrClosed) || err.Error()[:14] != "at revision 1:" {
					t.Errorf("the reader received %v", err)
				}
			default:
				t.Error("the reader waits")
			}
		}
		first, gone, left := reader(0), reader(1), reader(2)

		// Another version replaces the first.
		old, next := m.mirrors.Mirror(at(0)), m.mirrors.Mirror(at(2))
		old.Collection = fleet.catalog.Collection(at(0))
		old.Collection.Introduce("eu", old.Informer)
		x := &mirror.Mirror{
			Cluster: "eu", Resource: old.Resource, Source: old.Source, Collection: old.Collection, End: func() {},
			Feed: next.Feed, Informer: next.Informer,
		}
		x.Resource.Version = "v2"
		x.Collection.Introduce("eu", x.Informer)
		m.mirrors.Add(x, true)
		m.mirrors.Join(x, next.Informer.Snapshot())
		over(first)
		if f, ok := m.Feed(at(0)); !ok || f != next.Feed.Feed() {
			t.Error("the feed is not that of the version that is served")
		}
		if served := m.Served(); len(served) != 1 || served[0].Resource != "pods1" {
			t.Errorf("served are %v, before discovery says the new version", served)
		}

		m.mirrors.EndOne(at(1))
		over(gone)
		if _, ok := m.Feed(at(1)); ok {
			t.Error("a resource that is gone has a feed")
		}

		select {
		case err := <-left:
			t.Errorf("too early: %v", err)
		default:
		}
		m.leave()
		over(left)
		if len(fleet.feedLogs()) != 0 {
			t.Error("a member that has left has feeds")
		}
	})
}
