// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
)

// plain is a source of plain structs, in place of a cluster.
type plain struct {
	state  []pod
	events []reflector.Event[pod]
}

type pod struct{ name, phase string }

func (s *plain) List(_ context.Context, _ reflector.ListOptions, each func(pod) error) (reflector.Page, error) {
	for _, p := range s.state {
		if err := each(p); err != nil {
			return reflector.Page{}, err
		}
	}
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
	return event, nil
}

func (w *plainWatch) Close() error { return nil }

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
	dog := newWatchdog(source, func(p pod) string { return p.name }, h)
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
