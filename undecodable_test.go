// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// send sends an event of a pod "a/name" whose state may be one that cannot be decoded
// into a Pod.
func (s *server) send(t *testing.T, typ delta.Type, name string, decodable bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o := podState(t, name, s.version, decodable)
	for w := range s.streams {
		w.send(reflector.Event[*wire.Object]{Type: typ, Object: o, Version: strconv.FormatUint(s.version, 10)})
	}
}

func podState(t *testing.T, name string, version uint64, decodable bool) *wire.Object {
	t.Helper()
	var node any = "n"
	if !decodable {
		node = int64(7) // not a string
	}
	o, err := wire.Encode(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": "a", "name": name, "resourceVersion": strconv.FormatUint(version, 10)},
		"spec":     map[string]any{"nodeName": node},
	}}, wire.JSON, podKind)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// undecodableHistory is replayed to readers of every kind. Each state is decodable or
// not.
var undecodableHistory = []struct {
	typ       delta.Type
	name      string
	decodable bool
	want      []string
}{
	{delta.Added, "mended", false, nil},
	{delta.Updated, "mended", false, nil},
	{delta.Updated, "mended", true, []string{"add mended@103 initial=false"}},
	{delta.Updated, "mended", true, []string{"update mended@104 from 103"}},
	{delta.Updated, "mended", false, nil},
	{delta.Updated, "mended", true, []string{"update mended@106 from 104"}},
	{delta.Added, "breaks", true, []string{"add breaks@107 initial=false"}},
	{delta.Updated, "breaks", false, nil},
	{delta.Updated, "breaks", false, nil},
	{delta.Deleted, "breaks", false, []string{"delete breaks@107 seen=false"}},
	{delta.Deleted, "mended", false, []string{"delete mended@106 seen=false"}},
	{delta.Added, "never", false, nil},
	{delta.Deleted, "never", false, nil},
	{delta.Added, "breaks", true, []string{"add breaks@114 initial=false"}},
	{delta.Updated, "breaks", false, nil},
	{delta.Deleted, "breaks", true, []string{"delete breaks@116 seen=true"}},
}

func TestHandler_statesThatCannotBeDecoded(t *testing.T) {
	for _, memory := range []watershed.Memory{watershed.Fast, watershed.Packed} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
				Reflector: patient, Memory: memory, Logger: slog.New(slog.DiscardHandler),
			})
			var tr, addAndDelete trace
			pods.Handle(tr.handler())
			some := addAndDelete.handler()
			some.Update = nil
			pods.Handle(some)
			running(t, pods.Run)
			<-pods.Synced()
			synctest.Wait()
			for _, step := range undecodableHistory {
				s.send(t, step.typ, step.name, step.decodable)
				synctest.Wait()
				expect.Equal(t, tr.take(), step.want)
			}
			// A handler without Update receives the last decodable state at a deletion too.
			expect.Equal(t, addAndDelete.take(), []string{
				"add mended@103 initial=false", "add breaks@107 initial=false", "delete breaks@107 seen=false",
				"delete mended@106 seen=false",
				"add breaks@114 initial=false", "delete breaks@116 seen=true",
			})
		})
	}
}

// fixedList is a source with one list and a watch without events.
type fixedList struct {
	objects []*wire.Object
	*server
}

func (l fixedList) List(
	_ context.Context, _ reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	for _, o := range l.objects {
		if err := each(o); err != nil {
			return reflector.Page{}, err
		}
	}
	return reflector.Page{Version: "100"}, nil
}

func (l fixedList) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return l.server.Watch(ctx, reflector.WatchOptions{InitialEvents: true})
}

// TestHandler_undecodableFromTheStart also resyncs: the handler receives the last state
// that it received before, not the one that cannot be decoded.
func TestHandler_undecodableFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := patient
		opts.ListOnly = true
		s := fixedList{[]*wire.Object{podState(t, "bad", 1, false), podState(t, "good", 2, true)}, newServer()}
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
			Reflector: opts, Resync: time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		var tr trace
		pods.Handle(tr.handler())
		running(t, pods.Run)
		<-pods.Synced()
		synctest.Wait()
		expect.Equal(t, tr.take(), []string{"add good@2 initial=true"})
		s.send(t, delta.Updated, "good", false)
		synctest.Wait()
		expect.Equal(t, tr.take(), nil)
		time.Sleep(1500 * time.Millisecond)
		expect.Equal(t, tr.take(), []string{"update good@2 from 2"})
		s.send(t, delta.Updated, "bad", true)
		synctest.Wait()
		expect.Equal(t, tr.take(), []string{"add bad@102 initial=false"})
	})
}

// TestWatch_statesThatCannotBeDecoded replays the same history to a loop that skips the
// changes whose New returns an error.
func TestWatch_statesThatCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
			Reflector: patient, Logger: slog.New(slog.DiscardHandler),
		})
		running(t, pods.Run)
		<-pods.Synced()
		var tr trace
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			for c := range pods.Watch(ctx) {
				now, err := c.New()
				if err != nil {
					continue
				}
				switch c.Type {
				case delta.Added:
					tr.add("add %s@%s initial=%v", now.Name, now.ResourceVersion, c.Initial)
				case delta.Deleted:
					if c.Missed {
						t.Errorf("deletion of %s was missed", c.Key)
					}
					final := true
					if _, raw := c.Raw(); strconv.FormatUint(raw.Version(), 10) != now.ResourceVersion {
						final = false
					}
					tr.add("delete %s@%s seen=%v", now.Name, now.ResourceVersion, final)
				default:
					old, err := c.Old()
					if err != nil {
						t.Error(err)
						return
					}
					tr.add("update %s@%s from %s", now.Name, now.ResourceVersion, old.ResourceVersion)
				}
			}
		})
		synctest.Wait()
		for _, step := range undecodableHistory {
			s.send(t, step.typ, step.name, step.decodable)
			synctest.Wait()
			expect.Equal(t, tr.take(), step.want)
		}
	})
}

func TestUndecodable_isLoggedOncePerState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var logged trace
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{
			Reflector: patient, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		nodes := watershed.IndexBy(pods, byNode)
		running(t, pods.Run)
		<-pods.Synced()
		for range 2 {
			logged.take()
			s.send(t, delta.Updated, "bad", false)
			s.send(t, delta.Updated, "good", true)
			synctest.Wait()
			for range 100 {
				for key := range pods.All() {
					expect.Equal(t, key, "a/good")
				}
				if _, ok := pods.Get("a/bad"); ok {
					t.Fatal("an object that cannot be decoded was returned")
				}
			}
			expect.Equal(t, len(logged.take()), 1)
		}
		expect.Equal(t, pods.Status().Undecodable, 2)
		expect.Equal(t, pods.Len(), 2) // Len includes it
		failing, _ := nodes.Failing()
		expect.Equal(t, failing, 1)
	})
}
