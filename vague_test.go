// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// still is a server with some objects that has only its current version. Its watches have only
// a bookmark.
type still struct {
	mu      sync.Mutex
	version string
	objects []*wire.Object
	skipped []error
}

func (s *still) set(version string, skipped []error, objects ...*wire.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.skipped, s.objects = version, skipped, objects
}

func (s *still) List(
	_ context.Context, _ reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if err := each(o); err != nil {
			return reflector.Page{}, err
		}
	}
	return reflector.Page{Version: s.version, Skipped: s.skipped}, nil
}

func (s *still) Served(context.Context) (bool, error) { return true, nil }

func (s *still) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opts.Version != "" && opts.Version != s.version {
		return nil, &reflector.Error{Reason: reflector.Expired, Err: errors.New("too old")}
	}
	return &stillWatch{ctx: ctx, version: s.version}, nil
}

type stillWatch struct {
	ctx     context.Context
	version string
	sent    bool
}

func (w *stillWatch) Next() (reflector.Event[*wire.Object], error) {
	if !w.sent {
		w.sent = true
		return reflector.Event[*wire.Object]{Type: delta.Bookmark, Version: w.version, InitialEnd: true}, nil
	}
	<-w.ctx.Done()
	return reflector.Event[*wire.Object]{}, w.ctx.Err()
}

func (w *stillWatch) Close() error { return nil }

func setting(t *testing.T, name string, version int) *wire.Object {
	t.Helper()
	raw := fmt.Sprintf(
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","resourceVersion":"%d"}}`, name,
		version,
	)
	o, err := wire.NewObject([]byte(raw), wire.JSON, nil)
	expect.NoError(t, err)
	return o
}

// stored runs an informer of a source with files until the function returns.
func stored(t *testing.T, path string, src *still, during func(*watershed.Informer[*wire.Object])) {
	t.Helper()
	d, err := disk.Open(path, nil)
	expect.NoError(t, err)
	writing, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(writing) })
	i := watershed.FromSource(src, &watershed.SourceOptions[*wire.Object]{
		Logger: slog.New(slog.DiscardHandler), Reflector: reflector.Options{ListOnly: true},
		Hooks: engine.Hooks{Stored: &engine.Stored{Open: func(context.Context, *objectpack.Packer) (*storage.Mirror,
			error) {
			id := storage.Identity{
				Cluster: "uid-1", Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Encoding: "JSON",
			}
			return d.Storage().Cluster("east").Mirror(id, storage.MirrorOptions{})
		}}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	expect.NoError(t, i.WaitForSync(t.Context()))
	during(i)
	cancel()
	expect.NoError(t, <-done)
	stop()
	running.Wait()
	expect.NoError(t, d.Close())
}

func keysOf(i *watershed.Informer[*wire.Object]) (keys []string) {
	for key := range i.Snapshot().Raw() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// TestStored_notAListThatCannotBeRead deletes an object, and a list has one whose key cannot be
// read, so that it infers no deletion. The next process must not continue from there.
func TestStored_notAListThatCannotBeRead(t *testing.T) {
	path, src := t.TempDir(), &still{}
	a, b := setting(t, "a", 90), setting(t, "b", 91)
	src.set("100", nil, a, b)
	stored(t, path, src, func(i *watershed.Informer[*wire.Object]) {
		src.set("200", []error{&reflector.Error{Reason: reflector.Undecodable, Err: errors.New("garbage")}}, a)
		i.Relist()
		expect.Soon(t, "the second list", func() bool { return i.Snapshot().Version() == 200 })
		expect.Equal(t, keysOf(i), []string{"shop/a", "shop/b"})
	})
	src.set("200", nil, a)
	stored(t, path, src, func(i *watershed.Informer[*wire.Object]) { expect.Equal(t, keysOf(i), []string{"shop/a"}) })
}
