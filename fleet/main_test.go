// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roster is a directory that a test writes to.
type roster struct {
	mu      sync.Mutex
	entries map[string]fleet.Entry
	changed chan struct{}
}

func newRoster() *roster {
	return &roster{entries: map[string]fleet.Entry{}, changed: make(chan struct{}, 1)}
}

// set adds a cluster with a configuration, or removes it if cfg is nil.
func (r *roster) set(name string, cfg *rest.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cfg == nil {
		delete(r.entries, name)
	} else {
		r.entries[name] = fleet.Entry{Name: name, Config: cfg, Access: cfg.Host + cfg.BearerToken}
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *roster) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	for {
		r.mu.Lock()
		entries := slices.SortedFunc(maps.Values(r.entries), func(a, b fleet.Entry) int {
			return strings.Compare(a.Name, b.Name)
		})
		r.mu.Unlock()
		notify(entries)
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
	}
}

// quiet is the logger of tests in which errors are expected.
var quiet = slog.New(slog.DiscardHandler)

// start runs a fleet for the duration of the test.
func start(t *testing.T, d fleet.Directory, opts *fleet.Options) *fleet.Fleet {
	t.Helper()
	f, err := fleet.New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the fleet does not end")
		}
	})
	return f
}

// unlike returns how a cluster's part of a view differs from its etcd.
func unlike(ctx context.Context, f *fleet.Fleet, name string, c *kubetest.Cluster, r schema.GroupResource) error {
	truth, err := c.Truth(ctx, r)
	if err != nil {
		return err
	}
	want := map[string]uint64{}
	for _, o := range truth.Objects {
		key := o.Meta.GetName()
		if o.Meta.GetNamespace() != "" {
			key = o.Meta.GetNamespace() + "/" + key
		}
		want[key] = uint64(o.Revision)
	}
	var found []string
	n := 0
	for key, o := range fleet.OfResource[*wire.Object](f, r).In(name).All() {
		n++
		if v, ok := want[key.Object]; !ok || v != o.Version() {
			found = append(found, fmt.Sprintf("%s is at %d, in etcd %d", key, o.Version(), v))
		}
	}
	if n != len(want) {
		found = append(found, fmt.Sprintf("%s of %s: %d objects, in etcd %d", r, name, n, len(want)))
	}
	if len(found) > 5 {
		found = append(found[:5], "…")
	}
	if len(found) > 0 {
		return errors.New(strings.Join(found, "\n"))
	}
	return nil
}

// witness follows a view and checks that each change fits those before it.
type witness struct {
	t     *testing.T
	name  string
	mu    sync.Mutex
	known map[fleet.Key]uint64
	seen  int
}

func watchView(t *testing.T, name string, v *fleet.View[*wire.Object]) *witness {
	w := &witness{t: t, name: name, known: map[fleet.Key]uint64{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		last := uint64(0)
		for c := range v.Watch(ctx) {
			if c.Revision < last {
				t.Errorf("%s: %s of %s goes back from revision %d to %d", name, c.Type, c.Key, last, c.Revision)
			}
			last = c.Revision
			w.see(c)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return w
}

func (w *witness) see(c fleet.Change[*wire.Object]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
	old, now := c.Raw()
	had, known := w.known[c.Key]
	switch {
	case known != (c.Type != delta.Added):
		w.t.Errorf("%s: %s of %s, known at %d", w.name, c.Type, c.Key, had)
	case known && (old == nil || old.Version() != had):
		w.t.Errorf("%s: %s of %s from %v, known at %d", w.name, c.Type, c.Key, old, had)
	}
	w.known[c.Key] = now.Version()
	if c.Type == delta.Deleted {
		delete(w.known, c.Key)
	}
}

// behind returns how the objects of the witness differ from those of the view.
func (w *witness) behind(v *fleet.View[*wire.Object]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for key, o := range v.All() {
		n++
		if w.known[key] != o.Version() {
			return fmt.Errorf("the reader of %s knows %s at %d, it is at %d", w.name, key, w.known[key], o.Version())
		}
	}
	if n != len(w.known) {
		return fmt.Errorf("the reader of %s knows %d objects of %d", w.name, len(w.known), n)
	}
	return nil
}

func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}
