// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
)

// plain is a source of plain structs, in place of a cluster. An event without a version
// ends the watch with the error that the version is too old.
type plain struct {
	state []pod
	// later is the state of the lists after the first one.
	later  []pod
	events []reflector.Event[pod]
}

type pod struct{ name, phase string }

func (s *plain) List(_ context.Context, _ reflector.ListOptions, each func(pod) error) (reflector.Page, error) {
	for _, p := range s.state {
		if err := each(p); err != nil {
			return reflector.Page{}, err
		}
	}
	s.state = s.later
	return reflector.Page{Version: "1"}, nil
}

func (s *plain) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[pod], error) {
	if opts.InitialEvents {
		return nil, &reflector.Error{Reason: reflector.NotSupported}
	}
	return &plainWatch{ctx: ctx, source: s}, nil
}

func (s *plain) Served(context.Context) (bool, error) { return true, nil }

type plainWatch struct {
	ctx    context.Context
	source *plain
}

func (w *plainWatch) Next() (reflector.Event[pod], error) {
	if len(w.source.events) == 0 {
		<-w.ctx.Done()
		return reflector.Event[pod]{}, w.ctx.Err()
	}
	event := w.source.events[0]
	w.source.events = w.source.events[1:]
	if event.Version == "" {
		return event, &reflector.Error{Reason: reflector.Expired}
	}
	return event, nil
}

func (w *plainWatch) Close() error { return nil }

func same(old, now pod) bool { return old == now }

// A watch that has missed events is followed by another list. The handler receives only
// the differences.
func TestWatchdog_listsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &plain{
			state:  []pod{{"db", "Pending"}, {"gone", "Running"}, {"web", "Running"}},
			later:  []pod{{"db", "Running"}, {"new", "Running"}, {"web", "Running"}},
			events: []reflector.Event[pod]{{}},
		}
		var out strings.Builder
		dog := newWatchdog(source, func(p pod) string { return p.name }, same, printer(&out, func(p pod) string {
			return p.name
		}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- dog.run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := []string{
			"OnAdd: db (was there)", "OnAdd: gone (was there)", "OnAdd: web (was there)", "OnUpdate: db", "OnAdd: new",
			"OnDelete: gone",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if lists := dog.reflector.Status().Lists; lists != 2 {
			t.Errorf("%d lists, want two", lists)
		}
	})
}

func TestWatchdog(t *testing.T) {
	source := &plain{
		state: []pod{{"web", "Running"}},
		events: []reflector.Event[pod]{
			{Type: delta.Added, Object: pod{"nettool", "Pending"}, Version: "2"},
			{Type: delta.Updated, Object: pod{"nettool", "Running"}, Version: "3"},
			{Type: delta.Updated, Object: pod{"web", "Failed"}, Version: "4"},
			{Type: delta.Deleted, Object: pod{"nettool", "Running"}, Version: "5"},
			{Type: delta.Added, Object: pod{"end", ""}, Version: "6"},
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out strings.Builder
	h := printer(&out, func(p pod) string { return p.name })
	added := h.OnAdd
	h.OnAdd = func(p pod, initial bool) {
		if added(p, initial); p.name == "end" {
			cancel()
		}
	}
	dog := newWatchdog(source, func(p pod) string { return p.name }, same, h)
	if err := dog.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
	// The events of one pod come in order. Events of different pods may change places:
	// the queue returns the pod that has waited longest first.
	want := map[string]string{
		"web":     "OnAdd: web (was there) OnUpdate: web",
		"nettool": "OnAdd: nettool OnUpdate: nettool OnDelete: nettool",
		"end":     "OnAdd: end",
	}
	got := map[string]string{}
	for line := range strings.Lines(out.String()) {
		name := strings.Fields(line)[1]
		got[name] = strings.TrimSpace(got[name] + " " + strings.TrimSpace(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if _, ok := dog.store.Get("nettool"); ok {
		t.Error("nettool is gone and still in the store")
	}
	if p, _ := dog.store.Get("web"); p.phase != "Failed" {
		t.Errorf("the store has web as %v", p)
	}
}
